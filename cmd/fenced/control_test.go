package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/timeline"
	"github.com/fenced/fenced/internal/wire"
)

// What the engine refuses has its place among the API's errors, from which fencectl
// takes its exit status.
func TestRefusalsHaveTheirPlaceInTheAPI(t *testing.T) {
	for code, want := range map[reason.Code]api.Error{
		reason.NoSuchNode:               {Status: http.StatusNotFound, Code: "NoSuchNode"},
		reason.NoSuchCluster:            {Status: http.StatusNotFound, Code: "NoSuchCluster"},
		reason.NoSuchRun:                {Status: http.StatusNotFound, Code: "NoSuchRun"},
		reason.ClusterRequired:          {Status: http.StatusBadRequest, Code: "ClusterRequired"},
		reason.NoHold:                   {Status: http.StatusConflict, Code: "NoHold"},
		reason.NoRun:                    {Status: http.StatusConflict, Code: "NoRun"},
		reason.UnderRemediation:         {Status: http.StatusConflict, Code: "UnderRemediation"},
		reason.NotFrozen:                {Status: http.StatusConflict, Code: "NotFrozen"},
		reason.OrderRefused:             {Status: http.StatusUnprocessableEntity, Code: "OrderRefused"},
		reason.ConfirmedOffContradicted: {Status: http.StatusUnprocessableEntity, Code: "ConfirmedOffContradicted"},
		reason.Paused:                   {Status: http.StatusUnprocessableEntity, Code: "Paused"},
		reason.NotOwner:                 {Status: http.StatusUnprocessableEntity, Code: "NotOwner"},
	} {
		got, ok := errors.AsType[*api.Error](apiError(wire.Order{Verb: wire.Fence, Node: "n-1"}, &reason.Refusal{Reason: code, Message: "why"}))
		require.True(t, ok, code)
		assert.NotEmpty(t, got.Hint, code)
		want.Message, want.Hint = "why", got.Hint
		assert.Equal(t, want, *got, code)
	}
	elsewhere, ok := errors.AsType[*api.Error](apiError(wire.Order{Verb: wire.Fence, Node: "n-1"}, &reason.Refusal{Reason: reason.NotOwner}))
	require.True(t, ok)
	assert.Contains(t, elsewhere.Hint, "the instance that owns the cluster")
	for code, want := range map[reason.Code]string{
		reason.Hold: "fencectl release n-1 --cluster c --reason WHY", reason.NotEnrolled: "fencectl bmc enroll n-1 --cluster c --reason WHY",
		reason.Contested: "hand the check over, or let the other remediator finish", reason.NoHost: "an entry in hosts.d", reason.PowerOwner: "Beside Metal3",
		reason.NoSuchNode: "kubectl get nodes", reason.NoSuchMachine: "kubectl get machines -A",
		reason.Frozen: "fencectl bmc release n-1 --cluster c --reason WHY", reason.NodeAlive: "fencectl explain n-1 --cluster c shows",
	} {
		assert.Contains(t, refusalHint(wire.Order{Cluster: "c", Node: "n-1"}, code), want, code)
	}
	assert.Contains(t, refusalHint(wire.Order{Verb: wire.Disarm, Cluster: "c"}, reason.OrderRefused), "fencectl pause --cluster c --reason WHY")
	assert.Contains(t, refusalHint(wire.Order{Machine: "ns/m"}, reason.Contested), "fencectl explain --machine ns/m shows")
	plain := errors.New("disk full")
	assert.Equal(t, plain, apiError(wire.Order{}, plain))
}

// A limit that forbids remediation says which it is; one that allows it says nothing.
func TestClosedLimitIsNamed(t *testing.T) {
	k := policy.CheckReport{Kind: policy.MachineHealthCheckKind, State: policy.StateActive, Expected: 5, Healthy: 1, Limit: "40%", MaxUnhealthy: 2}
	closed := checkStatus(&k)
	assert.Equal(t, []string{"ShortCircuit", "at most 2 (40%)"}, []string{closed.Reason, closed.Limit})
	k.Allowed = true
	assert.Empty(t, checkStatus(&k).Reason+checkStatus(&k).Limit)
	k.Allowed, k.State = false, policy.StatePaused
	assert.Empty(t, checkStatus(&k).Reason)
}

// The history is in the order in which the runs began, also those that were taken up
// again; a Node that nobody knows has none.
func TestRunsAreInTheOrderOfTheirBegin(t *testing.T) {
	store, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer store.Close()
	hours := func(n int) time.Time { return time.Now().Add(-time.Duration(n) * time.Hour) }
	for _, r := range []remediate.Run{
		{ID: "b", Started: hours(1), Ended: hours(1), Steps: []remediate.Visit{{Step: remediate.PowerOff, Started: hours(9)}}},
		{ID: "a", Started: hours(5), Ended: hours(4), Steps: []remediate.Visit{{Step: remediate.PowerOff, Started: hours(5)}}},
	} {
		r.Target, r.Step = remediate.Target{Cluster: "prod", Node: "gone"}, remediate.Done
		_, err := state.SaveRun(t.Context(), store, r)
		require.NoError(t, err)
	}
	e, err := engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}, Instance: "one",
		Clusters: []engine.ClusterOptions{{Name: "prod", Mode: guard.ModeObserve, Watch: blind{}}}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, func() {}) }()
	ids := func(f wire.RunFilter) (all []string) {
		tl, err := control{engine: e, notes: timeline.New()}.Runs(t.Context(), f)
		require.NoError(t, err)
		for _, r := range tl.Runs {
			all = append(all, r.ID)
		}
		return all
	}
	require.Eventually(t, func() bool { return len(ids(wire.RunFilter{})) == 2 }, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"b", "a"}, ids(wire.RunFilter{Node: "gone"}))
	assert.Equal(t, []string{"a"}, ids(wire.RunFilter{Since: hours(6)}))
	for f, code := range map[wire.RunFilter]string{{Node: "nosuch"}: "NoSuchNode", {Node: "gone", Cluster: "nosuch"}: "NoSuchCluster"} {
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			_, err := control{engine: e, notes: timeline.New()}.Runs(ctx, f)
			var got *api.Error
			require.ErrorAs(t, err, &got)
			assert.Equal(t, code, got.Code)
		}, time.Minute, time.Millisecond)
	}
	cancel()
	require.NoError(t, <-ended)
}

func refusedStatus() engine.ClusterStatus {
	check := policy.CheckID{Kind: "MachineHealthCheck", APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "workers"}
	gate := reason.NewGate("limit", false, reason.ShortCircuit, "3 of 5 not healthy", "at most 2 (40%)", "check ns/workers")
	return engine.ClusterStatus{Name: "prod", Refused: []admit.Refused{
		{Check: check, Node: "n-1", Machine: "ns/m-1", Gate: gate, Since: noon},
		{Check: check, Node: "n-2", Gate: gate, Since: noon, NextTry: noon.Add(time.Minute)},
		{Check: policy.CheckID{Kind: "FencePolicy", Name: "all"}, Node: "n-2", Gate: gate, Since: noon},
		{CheckID: "FencePolicy.fenced.io all in policies.d/a.yaml", Node: "n-3", Run: "r-1", Gate: reason.Gate{Name: "hold", Reason: reason.Hold, Value: "held"}, Since: noon},
	}}
}

func TestBlockedIsWhatIsRefused(t *testing.T) {
	list := blockedIn(refusedStatus())
	require.Len(t, list, 4)
	assert.Equal(t, wire.Blocked{Cluster: "prod", Node: "n-1", Machine: "ns/m-1", Check: "MachineHealthCheck ns/workers", Reason: "ShortCircuit", Class: "transient",
		Message: "limit: 3 of 5 not healthy (needed: at most 2 (40%))", Next: "fencectl explain n-1 --cluster prod shows every gate", Since: noon}, list[0])
	assert.Equal(t, noon.Add(time.Minute), list[1].NextTry)
	assert.Empty(t, list[1].Next, "time heals it")
	assert.Equal(t, "fencectl release n-3 --cluster prod --reason WHY", list[3].Next)
	assert.Equal(t, "FencePolicy all", list[3].Check, "of the record of a run")
	assert.Equal(t, "r-1", list[3].Run)
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Why the timelines begin with the start is in the log.
func TestUnreadableAuditLogIsTold(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	folder := t.TempDir()
	n := recalledNotes(folder, zap.New(core)) // a folder is no log
	assert.Empty(t, n.Of("", "n-1"))
	if assert.Equal(t, 1, logs.Len()) {
		said := logs.All()[0].ContextMap()
		assert.Equal(t, folder, said["file"])
		assert.Contains(t, said["error"], "is a directory")
	}
}

// A daemon that restarts knows what happened before from its audit log.
func TestNotesOutliveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	require.NoError(t, timeline.New().Recall(path), "there is no log before the first start")
	log, err := audit.Open(path, audit.Options{Origin: audit.Origin{Version: "1", Host: "h", Store: "s"}, OnError: func(error) {}})
	require.NoError(t, err)
	for _, e := range []event.Event{
		{Cluster: "prod", Node: "n-1", Type: event.Ordered, Actor: "anna", Message: "anna holds it: disk"},
		{Cluster: "prod", Node: "n-1", Type: event.Failed, Run: "r-1", Reason: "BMCBusy", Message: "busy"},
	} {
		_, err = log.Append(t.Context(), entryOf(e))
		require.NoError(t, err)
	}
	require.NoError(t, log.Close())
	n := timeline.New()
	require.NoError(t, n.Recall(path))
	list := n.Of("prod", "n-1")
	require.Len(t, list, 2)
	assert.Equal(t, "anna", list[0].Actor)
	assert.NotZero(t, list[0].At)
	require.NotNil(t, n.LastError("r-1"))
	assert.Equal(t, "BMCBusy: busy", n.LastError("r-1").Text())
}

func TestShareOfEach(t *testing.T) {
	for _, c := range []struct{ a, b, c, most, each int }{
		{5, 5, 5, 15, 5},
		{1, 2, 90, 10, 7},
		{50, 60, 70, 30, 10},
		{9, 9, 9, 2, 1},
	} {
		counts := map[string]int{"a": c.a, "b": c.b, "c": c.c}
		assert.Equal(t, c.each, shareOfEach(counts, c.most), "%+v", c)
	}
}

// Whoever may create namespaces makes no answer longer than the limit.
func TestMoreNamespacesThanTheLimit(t *testing.T) {
	var list []string
	for i := range 30 {
		list = append(list, fmt.Sprint("tenant-", i/3))
	}
	itself := func(in string) string { return in }
	kept, more := share(list, 4, itself)
	assert.Equal(t, []string{"tenant-0", "tenant-1", "tenant-2", "tenant-3"}, kept)
	assert.Equal(t, 26, more)
	kept, more = share(append(list, "", ""), 4, itself)
	assert.Equal(t, []string{"tenant-0", "tenant-1", "tenant-2", ""}, kept, "the last is of an administrator")
	assert.Equal(t, 28, more)
	kept, more = share(list, 25, itself)
	assert.Len(t, kept, 20, "two of each of 10")
	assert.Equal(t, 10, more)
}

// What a namespace writes neither keeps other namespaces out of the status nor makes the
// status longer than a client reads.
func TestStatusOfACrowdedNamespace(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	found := policy.Report{}
	for i := range 3000 {
		k := policy.CheckReport{Kind: "MachineHealthCheck", Namespace: "tenant", Name: fmt.Sprint(i), State: policy.StateInvalid, Message: long}
		for j := range 10 {
			k.Targets = append(k.Targets, policy.TargetReport{Machine: fmt.Sprintf("tenant/m-%d", j), Verdict: policy.Indeterminate, Message: long})
		}
		found.Checks = append(found.Checks, k)
	}
	found.Checks = append(found.Checks, policy.CheckReport{
		Kind: "MachineHealthCheck", Namespace: "workers", Name: "all",
		Targets: []policy.TargetReport{{Node: "w-1", Verdict: policy.Unhealthy, Reason: reason.Undecodable}},
	})
	s := clusterStatus(engine.ClusterStatus{}, found)
	require.Len(t, s.Checks, maxChecksShown)
	assert.Equal(t, 1001, s.ChecksMore)
	assert.Equal(t, "workers", s.Checks[maxChecksShown-1].Namespace)
	require.Len(t, s.Deviating, maxTargetsShown)
	assert.Equal(t, 20_001, s.DeviatingMore)
	assert.Equal(t, wire.TargetStatus{Node: "w-1", Check: "MachineHealthCheck workers/all", Verdict: "Unhealthy", Reason: string(reason.Undecodable)}, s.Deviating[maxTargetsShown-1])
	for _, d := range s.Deviating {
		require.LessOrEqual(t, len(d.Message), maxShownText+len("..."))
	}
}

// The same of a plan.
func TestPlanOfACrowdedNamespace(t *testing.T) {
	p := admit.Plan{}
	for i := range maxTargetsShown {
		p.Items = append(p.Items, admit.Planned{Check: policy.CheckID{Kind: "MachineHealthCheck", Namespace: "tenant", Name: "all"}, Node: fmt.Sprint(i), Trigger: strings.Repeat("x", 1<<12)})
	}
	p.Items = append(p.Items, admit.Planned{Check: policy.CheckID{Kind: "MachineHealthCheck", Namespace: "workers", Name: "all"}, Node: "w-1"})
	actions, more := plannedActions(p)
	require.Len(t, actions, maxTargetsShown)
	assert.Equal(t, 1, more)
	assert.Equal(t, "w-1", actions[maxTargetsShown-1].Node)
	assert.LessOrEqual(t, len(actions[0].Message), maxShownText+len("..."))
}

// TestNextOfARunThatRests: a run that is Waiting or Held says which verb brings it on; one that is on
// its way says nothing.
func TestNextOfARunThatRests(t *testing.T) {
	at := func(step remediate.Step, change func(*remediate.Run)) string {
		r := remediate.Run{ID: "r-1", Target: remediate.Target{Cluster: "c", Node: "n-1"}, Strategy: remediate.PowerCycle, Step: step}
		if change != nil {
			change(&r)
		}
		return nextOfRun(&r)
	}
	assert.Empty(t, at(remediate.PowerOff, nil))
	assert.Equal(t, "mend the cause, then fencectl retry r-1 --reason WHY; or go there, cut its mains, then fencectl confirm-off n-1 --cluster c --reason WHY", at(remediate.Waiting, nil))
	off := func(r *remediate.Run) { r.LeaveOff, r.Isolated = true, noon }
	assert.Equal(t, "bring the host back with fencectl unfence n-1 --cluster c --reason WHY", at(remediate.Held, off))
}
