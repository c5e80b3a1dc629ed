package main

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

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
		c, d := control{engine: e, sweep: s}, &fenced{sweep: s}
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
