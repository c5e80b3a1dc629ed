package admit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

// That a namespace has more checks than are evaluated is told once, and that it is over. A namespace that alternates does not fill the log.
func TestTooManyChecksAreToldOnce(t *testing.T) {
	var told []event.Event
	emit := func(ev event.Event) { told = append(told, ev) }
	now, states := time.Now(), newCheckStates()
	crowd := []policy.Crowd{{Namespace: "namespace tenant", Message: "it has more than 1000 checks"}}
	for range 3 {
		assert.Zero(t, states.reportCrowds(crowd, emit, now))
	}
	require.Len(t, told, 1)
	assert.Equal(t, event.Event{Type: event.CheckChanged, Reason: reason.CheckLimit, Message: "namespace tenant: it has more than 1000 checks"}, told[0])
	assert.Zero(t, states.reportCrowds(nil, emit, now))
	require.Len(t, told, 2)
	assert.Equal(t, event.Event{Type: event.CheckChanged, Message: "namespace tenant: all its checks are evaluated again"}, told[1])
	for range 100 {
		states.reportCrowds(crowd, emit, now)
		states.reportCrowds(nil, emit, now)
	}
	assert.LessOrEqual(t, len(told), tellBurst)
	due := states.reportCrowds(crowd, emit, now)
	require.True(t, due.After(now))
	n := len(told)
	assert.Zero(t, states.reportCrowds(crowd, emit, due), "what is so then is told")
	assert.Len(t, told, n+1)
}

// Whoever creates and deletes checks in one namespace, each with another name, makes fenced write events at a pace, and does
// not delay what is to be told of others. What was not told is one event later, and nothing is kept for it.
func TestChecksThatComeAndGoAreToldAtAPace(t *testing.T) {
	var told []event.Event
	emit := func(ev event.Event) { told = append(told, ev) }
	now, states := time.Now(), newCheckStates()
	check := func(namespace, name string, s policy.State) policy.CheckReport {
		return policy.CheckReport{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: namespace, Name: name, State: s, Allowed: true}
	}
	prod := check("prod", "workers", policy.StateActive)
	var due time.Time
	for i := range 1000 {
		states.tell([]policy.CheckReport{prod, check("tenant", fmt.Sprint(i), policy.StateInvalid)}, emit, now)
		due = states.tell([]policy.CheckReport{prod}, emit, now)
	}
	assert.Len(t, told, authorBurst, "those that came, and those that went")
	assert.Len(t, states.byID, 1)
	require.True(t, due.After(now))

	told = nil
	states.tell(nil, emit, now)
	require.Len(t, told, 1, "it waits for nobody")
	assert.Equal(t, "check prod/workers is gone: it protects no target any more", told[0].Message)

	told = nil
	assert.Zero(t, states.tell(nil, emit, due), "what is so then is told")
	require.Len(t, told, 1)
	assert.Equal(t, reason.NotCovered, told[0].Reason)
	assert.Equal(t, "MachineHealthCheck of tenant: 975 more are gone: they protect no target any more", told[0].Message)

	assert.NotEmpty(t, states.authors, "it has no new pace at once")
	states.tell(nil, emit, now.Add(time.Hour))
	assert.Empty(t, states.authors)
}

// A namespace that is no longer crowded, or gone, is forgotten as soon as it would have no better pace as a new one.
func TestCrowdsThatAreOverAreForgotten(t *testing.T) {
	now, states := time.Now(), newCheckStates()
	emit := func(event.Event) {}
	crowd := []policy.Crowd{{Namespace: "namespace tenant", Message: "it has more than 1000 checks"}}
	states.reportCrowds(crowd, emit, now)
	states.reportCrowds(nil, emit, now)
	assert.Len(t, states.crowds, 1, "its pace is kept")
	states.reportCrowds(crowd, emit, now.Add(time.Hour))
	assert.Len(t, states.crowds, 1)
	states.reportCrowds(nil, emit, now.Add(time.Hour))
	states.reportCrowds(nil, emit, now.Add(2*time.Hour))
	assert.Empty(t, states.crowds)
}

// lostMachine is the machine that the lost run of lostHolder may have switched off.
const lostMachine = "4c4c4544-0042-3510-8054-b4c04f4d3132"

// lostHolder is a cluster with one request for Node n, which is deleted and whose finalizer names a run that
// the state lacks. The state has the other runs.
func lostHolder(t *testing.T, now time.Time, stored ...remediate.Run) *RequestedRuns {
	t.Helper()
	b := cluster.New(cluster.Options{Name: "c", Limits: cluster.NewLimits(guard.Limits{}, remediate.Limits{})}, now)
	q := &policy.Request{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind, Namespace: "ns", Name: "n", UID: "q", Created: now.Add(-time.Hour), Deleting: true,
		Power: &policy.PowerRequest{HasFinalizer: true, HeldFor: "r-lost", HeldMachine: lostMachine}}
	n := &policy.Node{Name: "n", UID: "uid-n", Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: now.Add(-time.Hour)}})}
	b.Follow(now, []policy.Change{
		{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "n"}, Value: n},
		{ID: policy.ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name}, Value: q},
	}, now)
	require.NoError(t, b.Runs.BeginLeadership(stored))
	return &RequestedRuns{model: b, unknown: map[string]time.Time{}}
}

// statusOfOnly is what the one request of a cluster is told.
func (w *RequestedRuns) statusOfOnly(t *testing.T, now time.Time) request.Status {
	t.Helper()
	list := w.model.Requested(now)
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
			w.model.Runs.Put(done)
			assert.Equal(t, !c.release, w.statusOfOnly(t, now.Add(time.Second)).KeepFinalizer)

			w.model.Runs.EndLeadership() // another instance may have begun the lost run since
			require.NoError(t, w.model.Runs.BeginLeadership([]remediate.Run{done}))
			assert.True(t, w.statusOfOnly(t, now.Add(time.Minute)).KeepFinalizer)
		})
	}
}

// Nor has a run on the machine that has taken the name of the Node since: neither while it is open nor at its end. // I20
func TestRunOnAnotherMachineAnswersNoLostOne(t *testing.T) {
	now := time.Now()
	r := remediate.Run{ID: "r-1", Step: remediate.RestoreNode, Attempt: 1, Intervened: true,
		Target: remediate.Target{Cluster: "c", Node: "n", SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4d7777"}}
	w := lostHolder(t, now, r)
	assert.True(t, w.statusOfOnly(t, now).KeepFinalizer)
	r.Step, r.Ended = remediate.Done, now
	w.model.Runs.Put(r)
	s := w.statusOfOnly(t, now.Add(time.Second))
	assert.Equal(t, []any{true, true, request.Held}, []any{s.KeepFinalizer, s.Lost, s.Phase})
}

// A request whose own run was dropped before it did anything is answered by no run that has ended before it was made.
func TestDroppedRunIsAnsweredByNoEarlierOne(t *testing.T) {
	now := time.Now()
	w := lostHolder(t, now)
	earlier := remediate.Run{ID: "r-1", Step: remediate.PowerOn, Attempt: 1, Intervened: true, Target: remediate.Target{Cluster: "c", Node: "n"}}
	w.model.Runs.Put(earlier)
	earlier.Step, earlier.Ended = remediate.Done, now.Add(-2*time.Hour)
	w.model.Runs.Put(earlier)
	assert.NotEqual(t, request.Succeeded, w.statusOfOnly(t, now).Phase)
}

// A record that somebody else has changed says nothing about the store: no other run waits because of it. An error of the store
// counts until a save succeeds, or for a while.
func TestTroubleOfTheStoreIsNotThatOfARecord(t *testing.T) {
	var s saves
	now := time.Now()
	for _, err := range []error{state.ErrNotOwner, state.ErrConflict, state.ErrExists, context.Canceled} {
		s.note(fmt.Errorf("save: %w", err), now)
		assert.Empty(t, s.trouble(now), err)
	}
	s.note(assert.AnError, now)
	s.note(state.ErrConflict, now)
	assert.Contains(t, s.trouble(now), assert.AnError.Error())
	assert.Empty(t, s.trouble(now.Add(savesRecent)))
	s.note(assert.AnError, now)
	s.note(nil, now)
	assert.Empty(t, s.trouble(now))
}

// A limit is near while the next unhealthy target closes it, or the last tenth of those that it allows. That is told once, and again after it
// was not.
func TestNearLimitIsTold(t *testing.T) {
	var told []event.Event
	emit := func(ev event.Event) { told = append(told, ev) }
	now, states := time.Now(), newCheckStates()
	report := func(expected, unhealthy, most int) []policy.CheckReport {
		return []policy.CheckReport{{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "prod", Name: "workers", State: policy.StateActive,
			Expected: expected, Healthy: expected - unhealthy, MaxUnhealthy: most, Allowed: unhealthy <= most}}
	}
	for _, tc := range []struct {
		expected, unhealthy, most int
		near                      bool
	}{{3, 0, 1, false}, {3, 1, 1, true}, {3, 2, 1, false}, {3, 0, 0, false}, {3, 1, 3, false}, {3, 3, 3, false}, {100, 18, 20, false}, {100, 19, 20, true}, {100, 20, 20, true}, {100, 21, 20, false}} {
		assert.Equal(t, tc.near, nearLimit(&report(tc.expected, tc.unhealthy, tc.most)[0]), "%+v", tc)
	}
	for _, unhealthy := range []int{1, 1, 0, 1, 2, 2, 1} {
		states.tell(report(3, unhealthy, 1), emit, now)
	}
	var types []string
	for _, ev := range told {
		types = append(types, ev.Type)
	}
	assert.Equal(t, []string{event.LimitNear, event.LimitNear, event.LimitClosed, event.LimitOpened, event.LimitNear}, types)
	assert.Equal(t, "check prod/workers is near its limit: 1 of 3 not healthy, at most 1 ()", told[0].Message)

	told = nil
	for range 100 { // one that alternates fills no log, and keeps nothing else from being told
		states.tell(report(3, 1, 1), emit, now)
		states.tell(report(3, 0, 1), emit, now)
	}
	assert.LessOrEqual(t, len(told), tellBurst)
	assert.Zero(t, states.tell(report(3, 2, 1), emit, now))
	assert.Equal(t, event.LimitClosed, told[len(told)-1].Type)
}

// viewed is a watch whose view a test sets.
type viewed struct {
	now     View
	changed chan struct{}
}

func (*viewed) Changes() []policy.Change   { return nil }
func (v *viewed) Changed() <-chan struct{} { return v.changed }
func (v *viewed) View() View               { return v.now }

// freshnessOf is that of a host that is always awake.
func freshnessOf(w Watch) *Freshness {
	return NewFreshness(FreshnessOptions{
		Watch: w, Limits: cluster.NewLimits(guard.Limits{ViewMaxAge: time.Minute, ClockSkewMax: 5 * time.Second}, remediate.Limits{}),
		Awake: func() suspend.Awake { return suspend.StayAwake(func() time.Duration { return 0 }) },
	})
}

// A view says what is there now once the ledger has taken it in, and as long as it does or nothing changes. // I16
func TestViewIsCurrentOnceItIsTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := &viewed{View{Synced: true}, make(chan struct{}, 1)}
		f := freshnessOf(watch)
		current := f.IsCurrent
		assert.False(t, current(), "nothing was taken in")
		f.renew(watch.now)
		assert.False(t, current(), "it must take in what is there")
		f.took(time.Now())
		assert.True(t, current())
		time.Sleep(time.Minute + time.Second)
		assert.False(t, current(), "the ledger has what was read a minute ago")
		watch.changed <- struct{}{}
		f.renew(watch.now)
		assert.False(t, current(), "a change waits")
		<-watch.changed
		f.renew(watch.now)
		assert.True(t, current(), "nothing has changed since")
		watch.now.Synced = false
		assert.False(t, current())
	})
}

// After a suspend the view may be proven before the ledger has taken in what changed during it. The clock by which the ledger is old stood
// still meanwhile. // I16
func TestViewFromBeforeASuspendIsNotCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := &viewed{View{Synced: true}, make(chan struct{}, 1)}
		f := freshnessOf(watch)
		suspended := time.Duration(0)
		f.opt.Awake = func() suspend.Awake { return suspend.StayAwake(func() time.Duration { return suspended }) }
		f.awake = f.opt.Awake()
		f.took(time.Now())
		time.Sleep(time.Second)
		assert.True(t, f.IsCurrent())
		suspended = time.Hour
		assert.False(t, f.IsCurrent(), "the view is from before it")
		time.Sleep(time.Second)
		require.True(t, f.View().Synced)
		assert.False(t, f.IsCurrent(), "the ledger is")
		watch.changed <- struct{}{}
		f.renew(watch.now)
		assert.False(t, f.IsCurrent(), "a change waits")
		<-watch.changed
		f.took(time.Now())
		assert.True(t, f.IsCurrent())
	})
}

// TestProblemOfAViewHasItsCode: what is wrong with a view is a sentence and a code; a wrong clock says who is behind, and by how much.
func TestProblemOfAViewHasItsCode(t *testing.T) {
	watch := &viewed{}
	f := freshnessOf(watch)
	for want, c := range map[string]struct {
		view View
		code reason.Code
	}{
		"":                                    {View{Synced: true, Skew: 5 * time.Second, SkewKnown: true}, ""},
		"not synced yet; watch Node: refused": {View{Problem: "watch Node: refused"}, reason.NotSynced},
		"the view is 1m30s old":               {View{Synced: true, Age: 90 * time.Second}, reason.ViewStale},
		"watch Node: refused":                 {View{Synced: true, Problem: "watch Node: refused"}, ""},
		"the clock of this host is 30s behind that of the API server":               {View{Synced: true, Skew: 30 * time.Second, SkewKnown: true}, reason.ClockSkew},
		"the clock of this host is 1m0s ahead of that of the management API server": {View{Synced: true, Skew: -time.Minute, SkewKnown: true, SkewOf: "the management API server"}, reason.ClockSkew},
	} {
		watch.now = c.view
		_, problem, _ := f.Check()
		assert.Equal(t, want, problem)
		code, kept := f.Problem()
		assert.Equal(t, want, kept)
		assert.Equal(t, c.code, code, want)
	}
}
