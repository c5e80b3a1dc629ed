package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/timeline"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
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
		reason.Frozen: "fencectl bmc unfreeze n-1 --cluster c --reason WHY", reason.ClassFrozen: "fencectl bmc unfreeze NODE --reason WHY for each", reason.NodeAlive: "fencectl explain n-1 --cluster c shows",
	} {
		assert.Contains(t, refusalHint(wire.Order{Cluster: "c", Node: "n-1"}, code), want, code)
	}
	for code, first := range map[reason.Code]string{reason.FilesRefused: "systemctl reload fenced", reason.AuditFailed: "audit log", reason.NotSaved: "disk of the state"} {
		off := refusalHint(wire.Order{Verb: wire.ConfirmOff, Cluster: "c", Node: "n-1"}, code)
		assert.Contains(t, off, first)
		assert.Contains(t, off, "the confirmation was not kept")
		assert.Contains(t, off, "give it again: fencectl confirm-off n-1 --cluster c --reason WHY")
		assert.Contains(t, refusalHint(wire.Order{Verb: wire.Fence, Node: "n-1"}, code), ", and give the order again")
		assert.NotContains(t, refusalHint(wire.Order{Node: "n-1"}, code), "again", "nobody has given an order")
	}
	unarmed := refusalHint(wire.Order{Verb: wire.ConfirmOff, Cluster: "c", Node: "n-1"}, reason.Observing)
	assert.Contains(t, unarmed, "fencectl arm --cluster c --reason WHY")
	assert.NotContains(t, unarmed, "an admin may", "a fence asks the BMC first, and its refusal leads back to the confirmation")
	assert.Contains(t, unarmed, "leave the host without power")
	assert.Contains(t, refusalHint(wire.Order{Verb: wire.Fence, Cluster: "c", Node: "n-1"}, reason.Observing), "an admin may fence one node without that")
	assert.Contains(t, refusalHint(wire.Order{Verb: wire.ConfirmOff, Cluster: "c", Node: "n-1"}, reason.ConfirmedOffContradicted), "fencectl bmc test n-1 --cluster c")
	assert.Contains(t, refusalHint(wire.Order{Verb: wire.Disarm, Cluster: "c"}, reason.OrderRefused), "fencectl pause --cluster c --reason WHY")
	assert.Contains(t, refusalHint(wire.Order{Machine: "ns/m"}, reason.Contested), "fencectl explain --machine ns/m shows")
	for _, code := range []reason.Code{reason.SecretMissing, "BMCUnreachable"} {
		hint := refusalHint(wire.Order{Cluster: "c", Machine: "ns/m"}, code)
		assert.Contains(t, hint, "fencectl bmc list --cluster c", code)
		assert.NotContains(t, hint, "bmc test", "it takes no Machine: the command would be refused")
	}
	rack := wire.Order{Verb: wire.Hold, Cluster: "c", Group: wire.Group{Rack: "r7"}}
	assert.Contains(t, refusalHint(rack, reason.NoSuchNode), "kubectl get nodes --show-labels")
	assert.Contains(t, refusalHint(rack, reason.NotSynced), "fencectl pause --cluster c --reason WHY")
	rack.Verb = wire.Release
	assert.Equal(t, "release the Nodes by name", refusalHint(rack, reason.NotSynced))
	plain := errors.New("disk full")
	assert.Equal(t, plain, apiError(wire.Order{}, plain))
}

// The answer to an order about labels says what it changed, what it did not, and what it could not know.
func TestAnswerAboutARackIsComplete(t *testing.T) {
	out := order.Outcome{Selector: "rack=r7", Nodes: []wire.GroupNode{{Node: "n-1", Changed: true, Held: true}, {Node: "n-2", Held: true}}}
	assert.Equal(t, "Nodes with rack=r7: 1 held until they are released; 1 stay as they were", holdMessage(wire.Order{}, out))
	assert.Equal(t, "Nodes with rack=r7: 1 released; 1 stay as they were", releaseMessage(wire.Order{}, out))
	out.Until = time.Date(2026, 1, 31, 18, 0, 0, 0, time.UTC)
	out.Unlabelled, out.OldView, out.Unsaved = []string{"ns/m-9"}, "the view is 5m0s old", "1 of 2 Nodes are held by this daemon alone"
	assert.Equal(t, "Nodes with rack=r7: 1 would be held until 2026-01-31T18:00:00Z; 1 stay as they were"+
		"; 1 Machines without a Node are not among them, because nobody knows their labels: hold those by name"+
		"; Nodes that have joined since may be missing: the view is 5m0s old; 1 of 2 Nodes are held by this daemon alone",
		holdMessage(wire.Order{DryRun: true}, out))
}

// Who holds a Node learns that a run is open on it, which may still switch the host.
func TestHoldTellsOfAnOpenRun(t *testing.T) {
	o := wire.Order{Node: "n-1"}
	assert.Equal(t, "n-1 is held", holdMessage(o, order.Outcome{}))
	assert.Equal(t, "n-1 is held; run r-1 is open on it, and may still switch the host on: fencectl timeline r-1", holdMessage(o, order.Outcome{Run: "r-1"}))
}

// A limit that forbids remediation says which it is; one that allows it says nothing.
func TestClosedLimitIsNamed(t *testing.T) {
	k := policy.CheckReport{Kind: policy.MachineHealthCheckKind, State: policy.StateActive, Expected: 5, Healthy: 1, Limit: "40%", MaxUnhealthy: 2}
	closed := checkStatus(&k)
	assert.Equal(t, []string{"ShortCircuit", "at most 2 (40%)"}, []string{closed.Reason, closed.Limit})
	k.Allowed = true
	assert.Empty(t, checkStatus(&k).Reason+checkStatus(&k).Limit+checkStatus(&k).LimitIsZero)
	k.Expected, k.Healthy, k.MaxUnhealthy = 2, 2, 0
	const zero = "40% of 2 allows 0 unhealthy targets, so nothing is ever remediated"
	assert.Equal(t, zero, checkStatus(&k).LimitIsZero, "before one is unhealthy")
	assert.Equal(t, "at most 0 (40%, rounded down)", k.LimitGate().Threshold)
	k.Namespace, k.Name = "ns", "w"
	assert.Equal(t, []string{"MachineHealthCheck ns/w: " + zero}, limitWarnings([]policy.CheckReport{k}))
	meant := k
	meant.Limit = "0%"
	assert.Empty(t, limitWarnings([]policy.CheckReport{meant}))
	k.Expected, k.Healthy, k.MaxUnhealthy = 5, 1, 2
	k.Allowed, k.State = false, policy.StatePaused
	assert.Empty(t, checkStatus(&k).Reason)
}

// The history is in the order in which the runs began, also those that were taken up
// again; a Node that nobody knows has none.
func TestRunsAreInTheOrderOfTheirBegin(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	hours := func(n int) time.Time { return time.Now().Add(-time.Duration(n) * time.Hour) }
	for _, r := range []remediate.Run{
		{ID: "b", Started: hours(1), Ended: hours(1), Steps: []remediate.Visit{{Step: remediate.PowerOff, Started: hours(9)}}},
		{ID: "a", Started: hours(5), Ended: hours(4), Steps: []remediate.Visit{{Step: remediate.PowerOff, Started: hours(5)}}},
	} {
		r.Target, r.Step = remediate.Target{Cluster: "prod", Node: "gone"}, remediate.Done
		must.Do(state.SaveRun(t.Context(), store, r))(t)
	}
	e := must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}, Instance: "one",
		Clusters: []engine.ClusterOptions{{Name: "prod", Mode: guard.ModeObserve, Watch: blind{}, Kube: away{}}}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, func() {}) }()
	ids := func(f wire.RunFilter) (all []string) {
		tl := must.Do(control{engine: e, notes: timeline.New()}.Runs(t.Context(), f))(t)
		for _, r := range tl.Runs {
			all = append(all, r.ID)
		}
		return all
	}
	require.Eventually(t, func() bool { return len(ids(wire.RunFilter{})) == 2 }, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"b", "a"}, ids(wire.RunFilter{Node: "gone"}))
	assert.Equal(t, []string{"a"}, ids(wire.RunFilter{Since: hours(6)}))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, err := control{engine: e, notes: timeline.New()}.Explain(ctx, "prod", "gone")
		var got *api.Error
		require.ErrorAs(t, err, &got)
		assert.Contains(t, got.Hint, "fencectl timeline gone --cluster prod shows its last run; kubectl get nodes")
	}, time.Minute, time.Millisecond)
	for f, code := range map[wire.RunFilter]string{{Node: "nosuch"}: "NoSuchNode", {Node: "gone", Cluster: "nosuch"}: "NoSuchCluster", {Cluster: "nosuch"}: "NoSuchCluster"} {
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

	dead := refusedStatus()
	dead.Refused[1].Gate = reason.NewGate("host", false, "BMCUnreachable", "no answer", "a usable BMC", "")
	assert.Contains(t, blockedIn(dead)[1].Next, "go there, cut its mains, then run fencectl confirm-off n-2 --cluster prod --reason WHY", "time may not")
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
	log := must.Do(audit.Open(path, audit.Options{Origin: audit.Origin{Version: "1", Host: "h", Store: "s"}, OnError: func(error) {}}))(t)
	for _, e := range []event.Event{
		{Cluster: "prod", Node: "n-1", Type: event.Ordered, Actor: "anna", Message: "anna holds it: disk"},
		{Cluster: "prod", Node: "n-1", Type: event.Failed, Run: "r-1", Reason: "BMCBusy", Message: "busy"},
	} {
		must.Do(log.Append(t.Context(), entryOf(e)))(t)
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
	because := func(code reason.Code) func(*remediate.Run) { return func(r *remediate.Run) { r.Reason = code } }
	for _, code := range []reason.Code{reason.PowerOffFailed, reason.NoHost, reason.SecretMissing, reason.ConfirmedOffContradicted, "BMCUnreachable"} {
		assert.Equal(t, "mend the cause, then fencectl retry r-1 --reason WHY; or go there, cut its mains, then fencectl confirm-off n-1 --cluster c --reason WHY",
			at(remediate.Waiting, because(code)), code)
	}
	for _, code := range []reason.Code{reason.TargetChanged, reason.Contested, reason.IdentityMismatch, reason.QuorumLost, reason.BMCShared} {
		assert.Equal(t, "mend the cause, then fencectl retry r-1 --reason WHY", at(remediate.Waiting, because(code)), "a confirmation is refused for %s, too, or overrides what must not be", code)
	}
	off := func(r *remediate.Run) { r.LeaveOff, r.Isolated = true, noon }
	assert.Equal(t, "bring the host back with fencectl unfence n-1 --cluster c --reason WHY", at(remediate.Held, off))
	assert.Equal(t, "bring the host back with fencectl unfence n-1 --cluster c --reason WHY; it is frozen: find out why its BMC read Off, then fencectl bmc unfreeze n-1 --cluster c --reason WHY",
		at(remediate.Held, because(reason.FalseOff)), "retry and confirm-off are refused while it is frozen")
}

// TestClusterThatWasNeverSeenHidesNoOther: its Nodes are not known, and those of the others are listed. Whoever names it is refused.
func TestClusterThatWasNeverSeenHidesNoOther(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	e := must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{},
		Clusters: []engine.ClusterOptions{{Name: "prod", Mode: guard.ModeObserve, Watch: blind{}, Kube: away{}}}}))(t) // it does not run yet
	c := control{engine: e, surveys: newSurveys()}
	c.surveys.ended, c.surveys.shared = time.Now(), time.Hour // no BMC is asked for
	assert.Equal(t, []string{"prod"}, must.Do(c.Nodes(t.Context(), wire.NodesFilter{Most: 5}))(t).Unseen)
	_, err := c.Nodes(t.Context(), wire.NodesFilter{Cluster: "prod"})
	var unseen *api.Error
	require.ErrorAs(t, err, &unseen)
	assert.Equal(t, "NotSynced", unseen.Code)
}

// What a person hears of a stop says whose it is, how long it binds, and what still does.
func TestStopsAreAnsweredInASentence(t *testing.T) {
	end := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for want, c := range map[string]struct {
		verb wire.Verb
		out  order.Outcome
	}{
		"n-1 is held until 2026-05-01T12:00:00Z":                                                                          {wire.Hold, order.Outcome{Until: end}},
		"n-1 is held; an earlier stop that ends later stays in force, by ada: disk":                                       {wire.Hold, order.Outcome{Earlier: "ada: disk"}},
		"paused in all clusters until 2026-05-01T12:00:00Z; an earlier stop that ends later stays in force, by ada: disk": {wire.Pause, order.Outcome{Until: end, Earlier: "ada: disk"}},
		"paused by this daemon alone":                                                                                     {wire.Pause, order.Outcome{Unsaved: "paused by this daemon alone"}},
		"resumed in all clusters, but fencing is still stopped: cluster c is paused":                                      {wire.Resume, order.Outcome{Still: "cluster c is paused"}},
		"n-1 is no longer held":           {wire.Release, order.Outcome{}},
		"n-1 is released from quarantine": {wire.Release, order.Outcome{Quarantine: true}},
		"n-1 is no longer held, but still in quarantine: restless; release it again to end that too":                                                                     {wire.Release, order.Outcome{Still: "in quarantine: restless"}},
		"run r-1 is closed, and its host stays as it is":                                                                                                                 {wire.Abort, order.Outcome{}},
		"record r-1 is ended: fenced no longer watches Reboot ns/n-1; while that object exists nothing acts on its target, so delete it when its remediator has stopped": {wire.Abort, order.Outcome{Asked: "Reboot ns/n-1"}},
		"disarmed: fenced begins nothing by itself; open runs bring their hosts back, and only those that an admin ordered go on":                                        {wire.Disarm, order.Outcome{}},
		"cluster c is not armed: nothing changed":                                                                                                                        {wire.Disarm, order.Outcome{Unchanged: "cluster c is not armed"}},
	} {
		assert.Equal(t, want, orders[c.verb].outcome(wire.Order{Verb: c.verb, Node: "n-1", Run: "r-1", AsIs: true}, c.out))
	}
	for verb, want := range map[wire.Verb]string{
		wire.Pause: "paused in cluster lab", wire.Resume: "resumed in cluster lab; the quiet period begins",
		wire.Disarm: "disarmed in cluster lab: fenced begins nothing by itself; open runs bring their hosts back, and only those that an admin ordered go on",
	} {
		assert.Equal(t, want, orders[verb].outcome(wire.Order{Verb: verb, Cluster: "lab"}, order.Outcome{}), "FENCED_CLUSTER may have named it, and nobody thinks of that")
	}
}

// TestEveryVerbIsCarriedOut: a verb that the socket takes has somebody who does it.
func TestEveryVerbIsCarriedOut(t *testing.T) {
	elsewhere := []wire.Verb{wire.TestBMC, wire.AuditBMC, wire.EnrollBMC, wire.LogLevel, wire.Reload} // hosts.go, control.setLogLevel, reload.go
	for _, r := range wire.Verbs {
		v := r.Name
		row, known := orders[v]
		assert.Equal(t, !slices.Contains(elsewhere, v), known, v)
		if known {
			assert.NotNil(t, row.give, v)
			assert.NotNil(t, row.outcome, v)
		}
	}
}

func openedAuditor(t *testing.T, path string) (*auditor, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	a := must.Do(newAuditor(path, "STORE", zap.New(core)))(t)
	t.Cleanup(func() { require.NoError(t, a.close()) })
	return a, logs
}

func entries(t *testing.T, path string) (all []audit.Entry) {
	t.Helper()
	must.Do(audit.Walk(path, func(l audit.Line) error { all = append(all, l.Entry); return nil }))(t)
	return all
}

// Each event is in the log once, those that something waits for included. // I24
func TestEventsAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a, logs := openedAuditor(t, path)
	events := event.NewStream(a.observe)
	events.Emit(event.Event{Type: event.Ordered, Node: "n-1", Actor: "root", Why: "it hangs", Message: "root fences: it hangs"})
	act := event.Event{Type: event.Acting, Node: "n-1", Run: "r1", Action: remediate.SendOff, Inputs: "power=On"}
	require.NoError(t, a.record(act))
	act.Recorded = true
	events.Emit(act)
	require.NoError(t, a.record(event.Event{Type: event.Started, Check: "ns/workers",
		Gates: []reason.Gate{{Name: "pause", Pass: true, Value: "no", Threshold: "not paused", Source: "state"}}}))

	all := entries(t, path)
	require.Len(t, all, 4)
	assert.Equal(t, &audit.Origin{Version: version, Host: all[0].Origin.Host, Store: "STORE"}, all[0].Origin)
	assert.Equal(t, []string{"root", "it hangs"}, []string{all[1].Actor, all[1].Why})
	assert.Equal(t, []string{"SendOff", "power=On"}, []string{all[2].Action, all[2].Inputs})
	assert.Equal(t, []audit.Gate{{Name: "pause", Pass: true, Value: "no", Threshold: "not paused"}}, all[3].Gates)
	assert.Equal(t, "ns/workers", all[3].Check)
	assert.EqualValues(t, 4, a.seq())
	assert.Zero(t, a.failures())

	require.NoError(t, a.close())
	heads := logs.FilterMessage("audit head").All()
	require.Len(t, heads, 2, "at the start and at the stop")
	fields := heads[1].ContextMap()
	assert.EqualValues(t, 4, fields["seq"])
	assert.Len(t, fields["hash"], 64)
}

// A log that is damaged forbids what hurts and nothing else, which the status says
// with since when and why, and is taken up again once an operator has moved it away.
func TestDamagedAuditLogForbidsWhatHurts(t *testing.T) {
	began := time.Now()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("junk\n"), 0o600))
	a, logs := openedAuditor(t, path)
	require.ErrorAs(t, a.record(event.Event{Type: event.Acting}), new(*audit.Broken))
	a.observe(event.Event{Type: event.Stepped})
	assert.EqualValues(t, 1, a.failures())
	require.Error(t, a.open())
	assert.Equal(t, 1, logs.FilterLevelExact(zapcore.ErrorLevel).Len(), "it is told once")
	shown := control{audit: a}.auditStatus()
	require.NotNil(t, shown)
	assert.Contains(t, shown.Problem, "keep it as evidence")
	assert.WithinRange(t, shown.Since, began, time.Now())
	assert.EqualValues(t, 1, shown.Missing)

	require.NoError(t, os.Rename(path, path+"-kept"))
	a.retry()
	assert.Nil(t, control{audit: a}.auditStatus())
	require.NoError(t, a.record(event.Event{Type: event.Acting}))
	all := entries(t, path)
	require.Len(t, all, 3)
	assert.Equal(t, audit.Lost, all[1].Type)
	assert.Equal(t, "1 events came while the log could not be opened", all[1].Message)
	assert.EqualValues(t, 1, a.failures())
}

func TestAuditLogHasOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	openedAuditor(t, path)
	_, err := newAuditor(path, "OTHER", zap.NewNop())
	require.True(t, errors.Is(err, audit.ErrLocked))
}

func TestAuditMetrics(t *testing.T) {
	a, _ := openedAuditor(t, filepath.Join(t.TempDir(), "audit.jsonl"))
	m := &metrics{registry: prometheus.NewRegistry()}
	m.measureAudit(a)
	found := must.Do(m.registry.Gather())(t)
	require.Len(t, found, 3)
	assert.Equal(t, "fenced_audit_writable", found[2].GetName())
	assert.EqualValues(t, 1, found[2].GetMetric()[0].GetGauge().GetValue())
	assert.Equal(t, "fenced_audit_failures_total", found[0].GetName())
	assert.Equal(t, "fenced_audit_seq", found[1].GetName())
	assert.EqualValues(t, 1, found[1].GetMetric()[0].GetGauge().GetValue())
}

// Who is refused an order is on record with what, why, and the code of the refusal. // I24
func TestRefusedOrdersAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a, _ := openedAuditor(t, path)
	c := control{events: event.NewStream(a.observe), audit: a, surveys: newSurveys()}
	c.Refused(wire.Order{Verb: wire.ConfirmOff, Cluster: "prod", Node: "n-1", Actor: "otto (uid 4004)", Reason: "it smells"},
		&api.Error{Code: api.CodeNotAuthorised, Message: "it needs role admin"})
	c.Refused(wire.Order{Verb: wire.Retry, Actor: "ada"}, &api.Error{Status: 504, Message: "it took too long"})
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	c.engine = must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{},
		Clusters: []engine.ClusterOptions{{Name: "only", Mode: guard.ModeObserve, Watch: blind{}, Kube: away{}}}}))(t)
	c.Refused(wire.Order{Verb: wire.Fence, Node: "n-1", Actor: "ada"}, &api.Error{Status: 422, Message: "it is protected"})
	c.Refused(wire.Order{Verb: wire.Pause, Actor: "ada"}, &api.Error{Status: 403, Message: "it needs role operator"})
	require.NoError(t, a.close())
	all := entries(t, path)
	assert.Empty(t, all[len(all)-1].Cluster, "all are meant")
	assert.Equal(t, "only", all[len(all)-2].Cluster, "nobody has to name it, and who reads the log of a cluster looks for it")
	all = all[:len(all)-2]
	assert.Equal(t, "failed: retry by ada: it took too long", all[len(all)-1].Message)
	e := all[len(all)-2]
	e.Seq, e.At = 0, time.Time{}
	assert.Equal(t, audit.Entry{
		Type: event.Ordered, Cluster: "prod", Node: "n-1", Actor: "otto (uid 4004)", Why: "it smells", Reason: "NotAuthorised",
		Message: "refused: confirm-off by otto (uid 4004): it needs role admin",
	}, e)
}

// A look at BMCs is on record before it begins, and that it was refused, too; a log level that is set already is an order all the same. // I24
func TestOrdersWithoutAnEffectAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a, _ := openedAuditor(t, path)
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	c := control{events: event.NewStream(a.observe), audit: a, surveys: newSurveys(), level: zap.NewAtomicLevel()}
	c.engine = must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{},
		Clusters: []engine.ClusterOptions{{Name: "only", Mode: guard.ModeObserve, Watch: blind{}, Kube: away{}}}}))(t)
	c.sweep = sweep.New(sweep.Options{Engine: swept{c.engine}})
	_, err := c.LookAtBMCs(t.Context(), wire.Order{Verb: wire.TestBMC, Cluster: "nosuch", Node: "n-1", Actor: "ada"})
	var refused *api.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "NoSuchCluster", refused.Code)
	_, err = c.LookAtBMCs(t.Context(), wire.Order{Verb: wire.AuditBMC, Node: "n-1", Actor: "ada"})
	require.ErrorAs(t, err, &refused)
	must.Do(c.Do(t.Context(), wire.Order{Verb: wire.LogLevel, Level: "info", Actor: "ada", Reason: "it is loud"}))(t)
	require.NoError(t, a.close())
	var got []string
	for _, e := range entries(t, path) {
		if e.Type == event.Ordered {
			got = append(got, e.Cluster+": "+e.Message)
		}
	}
	assert.Equal(t, []string{
		"nosuch: ada tests the BMCs of n-1", `nosuch: refused: bmc/test by ada: no cluster "nosuch" is configured`,
		"only: ada audits the BMCs of n-1", "only: refused: bmc/audit by ada: " + refused.Message, // nobody has to name the only one, and who reads its log looks for it
		": log-level by ada: it is info already",
	}, got)
}

// Who looks at warnings sees all that keeps a node from being remediated, and nothing of a
// run that goes well.
func TestLevelsOfEvents(t *testing.T) {
	for _, c := range []struct {
		event event.Event
		want  zapcore.Level
	}{
		{event.Event{Type: event.Started}, zapcore.InfoLevel},
		{event.Event{Type: event.Acting, Action: remediate.SendOff}, zapcore.InfoLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Done}, zapcore.InfoLevel},
		{event.Event{Type: event.Ordered}, zapcore.InfoLevel},
		{event.Event{Type: event.ViewChanged}, zapcore.InfoLevel},
		{event.Event{Type: event.ViewChanged, Message: "the API server is silent"}, zapcore.WarnLevel},
		{event.Event{Type: sweep.EventBMC}, zapcore.InfoLevel},
		{event.Event{Type: sweep.EventBMC, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.Refused, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.RefusalEnded}, zapcore.InfoLevel},
		{event.Event{Type: event.CheckChanged, Message: "is Active"}, zapcore.InfoLevel},
		{event.Event{Type: event.CheckChanged, Reason: reason.ShortCircuit, Message: "is Paused"}, zapcore.WarnLevel},
		{event.Event{Type: event.LimitClosed, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.LimitOpened}, zapcore.InfoLevel},
		{event.Event{Type: event.Failed, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Waiting}, zapcore.WarnLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Held}, zapcore.ErrorLevel},
	} {
		core, logs := observer.New(zap.DebugLevel)
		logEvents(zap.New(core))(c.event)
		require.Equal(t, 1, logs.Len())
		assert.Equal(t, c.want, logs.All()[0].Level, "%+v", c.event)
	}
}

// The keys of an event are a contract: people search for them.
func TestKeysOfEvents(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	logEvents(zap.New(core))(event.Event{Type: event.Stepped, Cluster: "prod", Node: "n", Machine: "ns/m", Check: "c", Run: "r", Step: remediate.Held,
		Action: remediate.SendOff, Reason: reason.ShortCircuit, Message: "look"})
	assert.Equal(t, "look", logs.All()[0].Message)
	assert.Equal(t, map[string]any{"event": "Step", "cluster": "prod", "node": "n", "machine": "ns/m", "check": "c", "run": "r", "step": "Held",
		"action": string(remediate.SendOff), "reason": "ShortCircuit"}, logs.All()[0].ContextMap())
}

// TestEventsNameTheirStream: sequence numbers count in the stream of one start; with its identity a reader notices a restart. A reason
// comes with its class.
func TestEventsNameTheirStream(t *testing.T) {
	first := func() wire.Event {
		c := control{events: event.NewStream(), surveys: newSurveys()}
		c.events.Emit(event.Event{Type: event.Refused, Reason: reason.DuplicateHost})
		for e, err := range c.Events(t.Context(), 0) {
			require.NoError(t, err)
			assert.Equal(t, c.Stream(), e.Stream)
			return e
		}
		return wire.Event{}
	}
	one, other := first(), first()
	assert.Equal(t, uint64(1), one.Seq)
	assert.Equal(t, uint64(1), other.Seq)
	assert.NotEqual(t, one.Stream, other.Stream)
	assert.Equal(t, string(reason.ClassOf(reason.DuplicateHost)), one.Class)
	assert.NotEmpty(t, one.Class)
}
