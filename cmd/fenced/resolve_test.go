package main

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/timeline"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// A name means one host, or is refused: never another host than the one that it names.
func TestResolve(t *testing.T) {
	record := func(id, node, machine string, step remediate.Step) remediate.Run {
		r := remediate.Run{ID: id, Step: step, Target: remediate.Target{Cluster: "prod", Node: node}}
		if machine != "" {
			r.Target.Namespace, r.Target.Machine = "ns", machine
		}
		return r
	}
	r := resolver{
		runs: []remediate.Run{
			record("a-1", "worker-1", "m-1", remediate.Held), record("a-2", "worker-2", "", remediate.Done), record("a-3", "", "m-3", remediate.PowerOff),
			record("a-4", "worker-4", "", remediate.Waiting), record("a-5", "a-4", "", remediate.Held), record("a-6", "worker-6", "", remediate.PowerOn),
			record("a-7", "worker-7", "m-7", remediate.Held),
		},
		seen: func(name string) []string {
			return map[string][]string{"a-6": {"prod"}, "worker-1": {"prod"}, "worker-2": {"prod"}, "worker-7": {"lab"}, "ns/m-7": {"lab", "prod"}, "worker-9": {"prod"}}[name]
		},
		nodeOf: func(machine string) (string, error) { return map[string]string{"ns/m-9": "worker-9"}[machine], nil },
	}
	node := func(name string) wire.Named { return wire.Named{Cluster: "prod", Node: name} }
	of := func(id string) wire.Named { return wire.Named{Cluster: "prod", Run: id} }
	for _, tc := range []struct {
		want  wire.Wanted
		given wire.Named
		means wire.Named
		code  reason.Code
	}{
		{want: wire.WantHost, given: wire.Named{Node: "worker-1"}, means: wire.Named{Node: "worker-1"}}, // seen or deleted
		{want: wire.WantHost, given: wire.Named{Node: "nosuch"}, means: wire.Named{Node: "nosuch"}},     // the engine refuses it
		{want: wire.WantHost, given: wire.Named{Machine: "ns/m-1"}, means: wire.Named{Machine: "ns/m-1"}},
		{want: wire.WantHost, given: wire.Named{Node: "a-1"}, means: node("worker-1")},
		{want: wire.WantHost, given: wire.Named{Node: "a-3"}, means: wire.Named{Cluster: "prod", Machine: "ns/m-3"}},
		{want: wire.WantHost, given: wire.Named{Node: "a-2"}, code: reason.NoRun}, // its Node may be another host by now
		{want: wire.WantHost, given: wire.Named{Node: "a-6"}, code: reason.AmbiguousName},
		{want: wire.WantHost, given: wire.Named{Node: "a-4"}, code: reason.AmbiguousName},
		{want: wire.WantAny, given: wire.Named{Node: "a-2"}, means: of("a-2")},
		{want: wire.WantAny, given: wire.Named{Node: "a-6"}, code: reason.AmbiguousName},
		{want: wire.WantAny, given: wire.Named{Node: "worker-2"}, means: wire.Named{Node: "worker-2"}},
		{want: wire.WantRun, given: wire.Named{Run: "a-1"}, means: of("a-1")},
		{want: wire.WantRun, given: wire.Named{Run: "worker-1"}, means: of("a-1")},
		{want: wire.WantRun, given: wire.Named{Machine: "ns/m-3"}, means: of("a-3")},
		{want: wire.WantRun, given: wire.Named{Run: "a-4"}, code: reason.AmbiguousName},
		{want: wire.WantRun, given: wire.Named{Run: "worker-2"}, code: reason.NoRun},
		{want: wire.WantRun, given: wire.Named{Run: "a-7"}, means: of("a-7")},
		{want: wire.WantRun, given: wire.Named{Run: "worker-7"}, code: reason.AmbiguousName}, // lab has one, too, without a run
		{want: wire.WantRun, given: wire.Named{Machine: "ns/m-7"}, code: reason.AmbiguousName},
		{want: wire.WantNode, given: wire.Named{Machine: "ns/m-7"}, code: reason.AmbiguousName},
		{want: wire.WantRun, given: wire.Named{Run: "worker-9"}, code: reason.NoRun},
		{want: wire.WantRun, given: wire.Named{Machine: "ns/nosuch"}, code: reason.NoRun},
		{want: wire.WantRun, given: wire.Named{Run: "z-1"}, means: wire.Named{Run: "z-1"}}, // perhaps the record of another remediator
		{want: wire.WantNode, given: wire.Named{Node: "a-1"}, means: node("worker-1")},
		{want: wire.WantNode, given: wire.Named{Node: "a-3"}, code: reason.NoSuchNode},
		{want: wire.WantNode, given: wire.Named{Machine: "ns/m-1"}, means: node("worker-1")},
		{want: wire.WantNode, given: wire.Named{Machine: "ns/m-3"}, code: reason.NoSuchNode},
		{want: wire.WantNode, given: wire.Named{Machine: "ns/m-9"}, means: wire.Named{Node: "worker-9"}},
		{want: wire.WantNode, given: wire.Named{Machine: "ns/nosuch"}, code: reason.NoSuchNode},
	} {
		means, err := r.resolve(tc.want, tc.given)
		if tc.code == "" {
			require.NoError(t, err, "%+v", tc)
			assert.Equal(t, tc.means, means, "%+v", tc)
			continue
		}
		var refusal *reason.Refusal
		require.ErrorAs(t, err, &refusal, "%+v", tc)
		assert.Equal(t, tc.code, refusal.Reason, "%+v", tc)
	}
	_, err := r.resolve(wire.WantRun, wire.Named{Run: "a-4"})
	require.EqualError(t, err, (&reason.Refusal{Reason: reason.AmbiguousName,
		Message: "a-4 means more than one thing: run a-4 on worker-4 in prod; run a-5 on a-4 in prod"}).Error())
}

// away is an API server that does not answer.
type away struct{ engine.Kube }

func (away) Announce(context.Context, lead.Announcement) (time.Duration, string, error) {
	return 0, "", errors.New("no answer")
}

func (away) Holder(context.Context, lead.Announcement) (string, error) {
	return "", errors.New("no answer")
}

func (away) Look(context.Context, remediate.Run, [][]byte) run.Fresh {
	return run.Fresh{Err: errors.New("no answer")}
}

func (away) LockNode(context.Context, remediate.Run) (time.Duration, string, error) {
	return 0, "", errors.New("no answer")
}

// A Node that fenced has deleted is explained by its run, with the command that brings it back; an order
// that needs the Node says the same.
func TestDeletedNodeIsExplainedByItsRun(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	held := remediate.Run{ID: "a-1", Step: remediate.Held, Reason: reason.ConfirmedOff, Started: at, StepStarted: at, Isolated: at, Isolation: remediate.IsolateDelete,
		Steps: []remediate.Visit{{Step: remediate.Held, Started: at}}, Note: "the host stays off", LeaveOff: true, Target: remediate.Target{Cluster: "prod", Node: "worker-3"}}
	must.Do(state.SaveRun(t.Context(), store, held))(t)
	e := must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}, Instance: "one",
		Clusters: []engine.ClusterOptions{{Name: "prod", Mode: guard.ModeObserve, Watch: blind{}, Kube: away{}}}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, func() {}) }()
	c := control{engine: e, notes: timeline.New(), surveys: newSurveys()}
	const says = "worker-3 was deleted by run a-1, Held: ConfirmedOff since "
	for _, name := range []string{"worker-3", "a-1"} {
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			n := must.Do(c.Resolve(wire.WantHost, wire.Named{Node: name}))(t)
			x := must.Do(c.Explain(ctx, n.Cluster, n.Node))(t)
			assert.Equal(t, says+at.Format(time.RFC3339)+": the host stays off", x.Message)
			assert.Equal(t, "fencectl unfence worker-3 --cluster prod --reason WHY", x.Next)
			assert.Equal(t, "ConfirmedOff", x.Refused)
		}, time.Minute, time.Millisecond)
	}
	_, err := c.Do(ctx, wire.Order{Verb: wire.Fence, Node: "worker-3", Reason: "x", Actor: "ada", Role: wire.Admin, DryRun: true})
	var refused *api.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "UnderRemediation", refused.Code)
	assert.Contains(t, refused.Message, says)
	assert.Contains(t, refused.Hint, "fencectl unfence worker-3")

	// A Node that is there, and on which a run is open, is refused in the same words: the gate has only the name of the run.
	for node, message := range map[string]string{"worker-3": says, "worker-4": "openRun: a-1"} {
		gate := &reason.Refusal{Reason: reason.UnderRemediation, Message: "openRun: a-1"}
		require.ErrorAs(t, c.refusal(wire.Order{Verb: wire.Fence, Node: node}, gate), &refused)
		assert.Equal(t, "UnderRemediation", refused.Code)
		assert.Contains(t, refused.Message, message)
	}
	cancel()
	require.NoError(t, <-ended)
}

// oneOutlet is a hosts.d with one entry, of a host behind an outlet.
type oneOutlet struct{ inventory }

func (oneOutlet) List(string) []string { return []string{"n-1"} }

func (o oneOutlet) Bare(cluster, of string) *bmc.Host {
	h, _, _ := o.Find(context.Background(), cluster, of)
	return &h
}

func (oneOutlet) Find(_ context.Context, cluster, of string) (bmc.Host, bool, error) {
	outlet := bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "192.0.2.200"}, Parameters: map[string]string{"plug": "1"}}
	return bmc.Host{Name: bmc.EntryName(cluster, of), PinnedUUID: "4c4c4544-0051-4d10-8059-b4c04f563733", Levels: []bmc.Level{{Devices: []bmc.Device{outlet}}}}, of == "n-1", nil
}

// isOn is a device that reads On.
type isOn struct{ bmc.Power }

func (isOn) Read(context.Context) (bmc.Reading, error) {
	return bmc.Reading{State: bmc.On, At: time.Now()}, nil
}

func (isOn) Close(context.Context) error { return nil }

// After an enrolment, after the release of a BMC and after the end of a run the devices of that host are read anew: bmc list
// would show for a minute what is not so any more. A dry run, and an order that is refused, change nothing.
func TestBMCsAreReadAnewAfterAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
		defer store.Close()
		must.Do(state.Freezes.Save(t.Context(), store, state.Freeze{RunID: "r-1", Host: "prod/n-1", Cluster: "prod", Node: "n-1", Reason: "the Lease was renewed"}))(t)
		e := must.Do(engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: oneOutlet{}, Instance: "one",
			Open:     func(bmc.Device) (bmc.Power, error) { return isOn{}, nil },
			Clusters: []engine.ClusterOptions{{Name: "prod", Mode: guard.ModeObserve, Watch: blind{}, Kube: away{}}}}))(t)
		var polls atomic.Int32
		open := func(bmc.Device) (bmc.Power, error) { polls.Add(1); return isOn{}, nil }
		s := sweep.New(sweep.Options{Engine: oneHost{}, Open: open, Urgent: open, LockOut: e.LockOut, Every: 2 * time.Hour, ReadTimeout: time.Second, Concurrency: 1,
			OnEvent: func(event.Event) {}, OnLatency: newMetrics("1").measured})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- e.Run(ctx, func() {}) }()
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(145 * time.Minute) // each device was polled
		c, d := control{engine: e, sweep: s, surveys: newSurveys()}, &fenced{sweep: s}
		polled := func(what string, want int32, do func()) {
			t.Helper()
			for untilNextPoll(t, s) < 5*time.Minute { // it is not about to be polled anyway
				time.Sleep(time.Minute)
			}
			before := polls.Load()
			do()
			time.Sleep(time.Minute)
			assert.Equal(t, want, polls.Load()-before, what)
		}
		order := func(o wire.Order) error {
			o.Cluster, o.Node, o.Actor, o.Reason = "prod", "n-1", "ada", "a test"
			_, err := c.Do(t.Context(), o)
			return err
		}
		polled("a dry run", 0, func() { require.NoError(t, order(wire.Order{Verb: wire.EnrollBMC, DryRun: true})) })
		polled("an enrolment", 1, func() { require.NoError(t, order(wire.Order{Verb: wire.EnrollBMC})) })
		polled("a release", 1, func() { require.NoError(t, order(wire.Order{Verb: wire.UnfreezeBMC})) })
		polled("a release of what is not frozen", 0, func() { require.ErrorContains(t, order(wire.Order{Verb: wire.UnfreezeBMC}), "no freeze stands") })
		polled("a step", 0, func() {
			d.pollAfterRun(event.Event{Type: event.Stepped, Step: remediate.PowerOn, Cluster: "prod", Node: "n-1"})
		})
		polled("the end of a run", 1, func() {
			d.pollAfterRun(event.Event{Type: event.Stepped, Step: remediate.Done, Cluster: "prod", Node: "n-1"})
		})
		polled("of another host", 0, func() {
			d.pollAfterRun(event.Event{Type: event.Stepped, Step: remediate.Done, Cluster: "prod", Node: "n-2"})
		})
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})
}

// untilNextPoll is in how long the device of a sweep is polled next.
func untilNextPoll(t *testing.T, s *sweep.Sweep) time.Duration {
	t.Helper()
	found := must.Do(s.Results(t.Context(), "prod"))(t)
	require.Len(t, found, 1)
	return time.Until(found[0].Next)
}
