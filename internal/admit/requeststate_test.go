package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// lostHolder is a cluster with one request for Node n, which is deleted and whose finalizer names a run that
// the state lacks. The state has the other runs.
func lostHolder(t *testing.T, now time.Time, stored ...remediate.Run) *RequestedRuns {
	t.Helper()
	b := cluster.New(cluster.Options{Name: "c", Limits: cluster.NewLimits(guard.Limits{}, remediate.Limits{})}, now)
	q := &policy.Request{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind, Namespace: "ns", Name: "n", UID: "q", Created: now.Add(-time.Hour), Deleting: true,
		Power: &policy.PowerRequest{HasFinalizer: true, HeldFor: "r-lost"}}
	n := &policy.Node{Name: "n", UID: "uid-n", Conditions: []policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: now.Add(-time.Hour)}}}
	b.Follow(now, []policy.Change{
		{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "n"}, Value: n},
		{ID: policy.ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name}, Value: q},
	}, now)
	require.NoError(t, cluster.AdmissionSwitch{Model: b}.BeginLeadership(stored))
	return &RequestedRuns{requests: cluster.Requests{Model: b}, unknown: map[string]time.Time{}}
}

// statusOfOnly is what the one request of a cluster is told.
func (w *RequestedRuns) statusOfOnly(t *testing.T, now time.Time) request.Status {
	t.Helper()
	list := w.requests.Requested(now)
	require.Len(t, list, 1)
	w.recordHolds(list, now)
	return request.Of(list[0].Requested, list[0].Run, list[0].RunOver, request.Refusal{}, w.isUnknown(list[0]))
}

// The end of a run is a time of the clock that the process had which wrote it. It says nothing about what a
// run that was lost has done since: a request whose run is lost is answered by no end that this process has not
// seen, however its clock is set. // I20, I22
func TestEndOfAnOlderRunAnswersNoLostOne(t *testing.T) {
	now := time.Now()
	done := func(change func(*remediate.Run)) remediate.Run {
		r := remediate.Run{ID: "r-old", Step: remediate.Done, Ended: now.Add(-time.Minute), Attempt: 1, Intervened: true, Target: remediate.Target{Cluster: "c", Node: "n"}}
		change(&r)
		return r
	}
	own := &remediate.Request{Kind: policy.FencedRemediationKind, Namespace: "ns", Name: "n", UID: "q"}
	for name, old := range map[string]remediate.Run{
		"of a check, by a clock that was ahead": done(func(*remediate.Run) {}),
		"of a check, by one that is ahead":      done(func(r *remediate.Run) { r.Ended = now.Add(time.Hour) }),
		"a replacement":                         done(func(r *remediate.Run) { r.Step = remediate.Reprovisioned }),
		"of the request, in a backup":           done(func(r *remediate.Run) { r.Request = own }),
	} {
		t.Run(name, func(t *testing.T) {
			w := lostHolder(t, now, old)
			for _, jump := range []time.Duration{0, -3 * time.Hour, 3 * time.Hour} {
				s := w.statusOfOnly(t, now.Add(jump))
				assert.Equal(t, []any{true, true, request.Held}, []any{s.KeepFinalizer, s.Lost, s.Phase}, "%s", jump)
			}
		})
	}
}

// A run that this process has seen end Done has brought the host back. Where its clock was wrong, the request stays until
// something else shows that the host is on.
func TestEndThatThisProcessSawAnswersALostRun(t *testing.T) {
	now := time.Now()
	r := remediate.Run{ID: "r-1", Step: remediate.RestoreNode, Attempt: 1, Intervened: true, Target: remediate.Target{Cluster: "c", Node: "n"}}
	for name, c := range map[string]struct {
		ended   time.Time
		release bool
	}{"now": {now, true}, "by a clock that is behind": {now.Add(-3 * time.Hour), false}, "by a clock that is ahead": {now.Add(3 * time.Hour), false}} {
		t.Run(name, func(t *testing.T) {
			w := lostHolder(t, now, r)
			require.False(t, w.statusOfOnly(t, now).Lost, "an open run brings the host back")
			done := r
			done.Step, done.Ended = remediate.Done, c.ended
			w.requests.Put(done)
			assert.Equal(t, !c.release, w.statusOfOnly(t, now.Add(time.Second)).KeepFinalizer)

			w.requests.EndLeadership() // another instance may have begun the lost run since
			require.NoError(t, cluster.AdmissionSwitch{Model: w.requests.Model}.BeginLeadership([]remediate.Run{done}))
			assert.True(t, w.statusOfOnly(t, now.Add(time.Minute)).KeepFinalizer)
		})
	}
}

// A request whose own run was dropped before it did anything is answered by no run that has ended before it was made.
func TestDroppedRunIsAnsweredByNoEarlierOne(t *testing.T) {
	now := time.Now()
	w := lostHolder(t, now)
	earlier := remediate.Run{ID: "r-1", Step: remediate.PowerOn, Attempt: 1, Intervened: true, Target: remediate.Target{Cluster: "c", Node: "n"}}
	w.requests.Put(earlier)
	earlier.Step, earlier.Ended = remediate.Done, now.Add(-2*time.Hour)
	w.requests.Put(earlier)
	assert.NotEqual(t, request.Succeeded, w.statusOfOnly(t, now).Phase)
}
