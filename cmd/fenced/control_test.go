package main

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/timeline"
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
		got, ok := errors.AsType[*api.Error](apiError(api.Order{Verb: api.Fence, Node: "n-1"}, &reason.Refusal{Reason: code, Message: "why"}))
		require.True(t, ok, code)
		assert.NotEmpty(t, got.Hint, code)
		want.Message, want.Hint = "why", got.Hint
		assert.Equal(t, want, *got, code)
	}
	elsewhere, ok := errors.AsType[*api.Error](apiError(api.Order{Verb: api.Fence, Node: "n-1"}, &reason.Refusal{Reason: reason.NotOwner}))
	require.True(t, ok)
	assert.Contains(t, elsewhere.Hint, "the instance that owns the cluster")
	for code, want := range map[reason.Code]string{
		reason.Hold: "fencectl release n-1 --cluster c --reason WHY", reason.NotEnrolled: "fencectl bmc enroll n-1 --cluster c --reason WHY",
		reason.Contested: "hand the check over, or let the other remediator finish", reason.NoHost: "an entry in hosts.d", reason.PowerOwner: "Beside Metal3",
		reason.NoSuchNode: "kubectl get nodes", reason.NoSuchMachine: "kubectl get machines -A",
		reason.Frozen: "fencectl bmc release n-1 --cluster c --reason WHY", reason.NodeAlive: "fencectl explain n-1 --cluster c shows",
	} {
		assert.Contains(t, refusalHint(api.Order{Cluster: "c", Node: "n-1"}, code), want, code)
	}
	assert.Contains(t, refusalHint(api.Order{Verb: api.Disarm, Cluster: "c"}, reason.OrderRefused), "fencectl pause --cluster c --reason WHY")
	assert.Contains(t, refusalHint(api.Order{Machine: "ns/m"}, reason.Contested), "fencectl explain --machine ns/m shows")
	plain := errors.New("disk full")
	assert.Equal(t, plain, apiError(api.Order{}, plain))
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
	ids := func(f api.RunFilter) (all []string) {
		tl, err := control{engine: e, notes: timeline.New()}.Runs(t.Context(), f)
		require.NoError(t, err)
		for _, r := range tl.Runs {
			all = append(all, r.ID)
		}
		return all
	}
	require.Eventually(t, func() bool { return len(ids(api.RunFilter{})) == 2 }, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"b", "a"}, ids(api.RunFilter{Node: "gone"}))
	assert.Equal(t, []string{"a"}, ids(api.RunFilter{Since: hours(6)}))
	for f, code := range map[api.RunFilter]string{{Node: "nosuch"}: "NoSuchNode", {Node: "gone", Cluster: "nosuch"}: "NoSuchCluster"} {
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
