package sweep

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
)

func TestEveryDeviceIsAskedEachInterval(t *testing.T) {
	w := newWorld()
	for n := range 200 {
		w.host(n)
	}
	w.run(t, func(t *testing.T) {
		w.wait(30 * time.Second)
		asked := 0
		for _, m := range w.machines {
			asked += len(m.reads)
		}
		assert.InDelta(t, 100, asked, 60, "the looks are spread over the interval")
		w.wait(10*time.Minute - 30*time.Second)
		for name, m := range w.machines {
			assert.GreaterOrEqual(t, len(m.reads), 8, name)
			assert.LessOrEqual(t, len(m.reads), 10, name)
			assert.Equal(t, m.busy, m.open, "%s has a session left", name)
		}
		r := w.result(t, 7)
		assert.Equal(t, StateOK, r.State)
		assert.True(t, r.Dependable)
		assert.Equal(t, bmc.On, r.Power)
		assert.Equal(t, 10*time.Millisecond, r.Latency)
		assert.True(t, r.Next.After(time.Now()))
	})
	assert.Empty(t, w.events)
	assert.Len(t, w.checked, w.measured, "each look is told and measured")
	assert.NotZero(t, w.measured)
}

// Most BMCs hang: what is worst for the rest.
func TestHungDevicesDelayNobody(t *testing.T) {
	w := newWorld()
	for n := range 1100 {
		w.host(n).hangs = n%11 != 0
	}
	w.run(t, func(t *testing.T) {
		w.wait(time.Hour)
	})
	dead := 0
	for name, m := range w.machines {
		if m.hangs {
			dead += len(m.reads)
			continue
		}
		require.NotEmpty(t, m.reads, name)
		for i := 3; i < len(m.reads); i++ { // the first looks are at 1,100 unknown ones
			gap := m.reads[i].Sub(m.reads[i-1])
			require.Less(t, gap, every+every/5+time.Second, "%s look %d", name, i)
		}
	}
	assert.LessOrEqual(t, w.most, DefaultConcurrency)
	assert.Less(t, dead/1000, 15, "dead ones are asked less and less often")
	failed := 0
	for _, e := range w.events {
		assert.Equal(t, "BMCUnreachable", string(e.Reason))
		failed++
	}
	assert.Equal(t, 1000, failed, "each dead one is told once")
}

func TestThreeFailuresAreToldOnce(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.err = failing(bmc.KindRefused)
	w.run(t, func(t *testing.T) {
		w.wait(2*every - time.Second) // the third look may come right after
		require.Empty(t, w.events)
		assert.True(t, w.result(t, 1).Dependable)
		assert.Equal(t, StateFailed, w.result(t, 1).State)
		w.wait(2 * every)
		require.Len(t, w.events, 1)
		assert.Equal(t, EventBMC, w.events[0].Type)
		assert.Equal(t, "BMCRefused", string(w.events[0].Reason))
		assert.Equal(t, "n-1", w.events[0].Node)
		assert.Contains(t, w.events[0].Message, "ipmi://bmc-1:623")
		assert.False(t, w.result(t, 1).Dependable)
		w.wait(time.Hour)
		require.Len(t, w.events, 1)
		_, bad := w.sweep.Tally()
		assert.Equal(t, 1, bad["prod"])

		w.change(func() { m.err = nil })
		w.wait(maxInterval + maxInterval/5)
		require.Len(t, w.events, 2)
		assert.Empty(t, w.events[1].Reason)
		assert.True(t, w.result(t, 1).Dependable)
		groups, bad := w.sweep.Tally()
		assert.Empty(t, bad)
		assert.Equal(t, map[Group]int{{"prod", bmc.DriverIPMI, StateOK}: 1}, groups)
	})
}

func TestAnotherMachineAndAFaultAreFailures(t *testing.T) {
	w := newWorld()
	w.host(1).uuid = "4c4c4544-0042-3510-8052-000000000001"
	w.host(2).fault = "control fault"
	w.frozen = "n-2"
	w.run(t, func(t *testing.T) {
		w.wait(5 * every)
		assert.Equal(t, StateMismatch, w.result(t, 1).State)
		assert.Equal(t, reason.IdentityMismatch, w.result(t, 1).Reason)
		assert.Equal(t, StateFailed, w.result(t, 2).State)
		assert.Equal(t, reason.BMCFault, w.result(t, 2).Reason)
		assert.Empty(t, w.result(t, 1).Refused)
		assert.Equal(t, reason.Frozen, w.result(t, 2).Refused[0].Reason)
		require.Len(t, w.events, 2)
	})
}

// A run polls its BMC for ten minutes: nothing of the sweep slows it, and the BMC
// is not taken for a dead one.
func TestARunIsGivenWay(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.takes = 2 * time.Second // so that a look is often in flight when the run asks
	w.run(t, func(t *testing.T) {
		run := must.Do(w.actors.Urgent()(w.subjects[0].Host.Levels[0].Devices[0]))(t)
		for range 60 {
			began := time.Now()
			must.Do(run.Read(t.Context()))(t)
			require.Equal(t, m.takes, time.Since(began))
			w.wait(8 * time.Second) // long enough for the sweep to begin
		}
		for range 100 {
			must.Do(run.Read(t.Context()))(t)
			w.wait(time.Second)
		}
		require.NoError(t, run.Close(t.Context()))
		assert.Zero(t, w.result(t, 1).Failures, "a BMC that a run uses is not a dead one")
		assert.Empty(t, w.events)
		w.wait(3 * yieldPause)
		assert.Equal(t, StateOK, w.result(t, 1).State)
		assert.Less(t, time.Since(w.result(t, 1).Checked), 3*yieldPause, "it is asked again soon")
		assert.Zero(t, m.clash)
	})
}

func TestInventoryChanges(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	w.host(2)
	w.run(t, func(t *testing.T) {
		w.wait(3 * every)
		w.change(func() {
			w.subjects = w.subjects[:1]
			moved := w.subjects[0]
			d := moved.Host.Levels[0].Devices[0]
			d.Endpoint.Host = "bmc-9"
			moved.Host.Levels = []bmc.Level{{Devices: []bmc.Device{d}}}
			w.subjects[0] = moved
			w.machines["bmc-9"] = &machine{uuid: m.uuid}
			w.subjects = append(w.subjects,
				hosts.Subject{Cluster: "prod", Node: "n-3", Err: &reason.Refusal{Reason: reason.InvalidHost, Message: "no such scheme"}},
				hosts.Subject{Cluster: "prod", Node: "n-4", Err: &reason.Refusal{Reason: reason.NoHost, Message: "a cloud"}})
		})
		w.wait(3 * every)
		before := len(m.reads)
		w.wait(3 * every)
		assert.Len(t, m.reads, before, "the old address is left alone")
		assert.Len(t, w.sweep.plan.later, 1)
		assert.Equal(t, "ipmi://bmc-9:623", w.result(t, 1).Address)
		assert.Equal(t, StateOK, w.result(t, 1).State)
		all := w.results(t, "")
		require.Len(t, all, 2, "a Node without any BMC is none of ours")
		assert.Equal(t, reason.InvalidHost, all[1].Reason)
		assert.False(t, all[1].Dependable)
		assert.Empty(t, w.results(t, "other"))
		_, bad := w.sweep.Tally()
		assert.Equal(t, 1, bad["prod"])
	})
}

// After a reload the inventory is read at once, and not only after the interval: what is gone is in no
// list and no metric any more.
func TestInventoryIsReadAfterAReload(t *testing.T) {
	w := newWorld()
	w.host(1)
	w.host(2)
	w.run(t, func(t *testing.T) {
		w.wait(3 * every)
		w.change(func() { w.subjects = w.subjects[:1] })
		w.wait(0)
		require.Len(t, w.results(t, ""), 2)
		w.sweep.ReadInventory()
		w.wait(0)
		assert.Len(t, w.results(t, ""), 1)
		devices, _ := w.sweep.Tally()
		assert.Len(t, devices, 1)
		w.change(func() { w.subjects = nil })
		w.wait(2 * every)
		assert.Empty(t, w.results(t, ""), "and after the interval as before")
	})
}

// What was reported of a device ends when the device leaves the inventory: nobody looks at it any more, so nothing else would end it. A poll
// that is under way then reports nothing after that.
func TestReportOfADeviceEndsWithIt(t *testing.T) {
	w := newWorld()
	for n := range 3 {
		w.host(n).err = failing(bmc.KindRefused)
	}
	w.run(t, func(t *testing.T) {
		w.wait(5 * every)
		require.Len(t, w.events, 3)
		w.change(func() {
			w.subjects = w.subjects[:2]
			d := w.subjects[0].Host.Levels[0].Devices[0]
			d.Endpoint.Host = "bmc-9"
			w.subjects[0].Host.Levels = []bmc.Level{{Devices: []bmc.Device{d}}}
			w.machines["bmc-9"] = &machine{uuid: w.machines["bmc-0"].uuid}
		})
		w.wait(every)
		require.Len(t, w.events, 5)
		gone := map[string]event.Event{}
		for _, e := range w.events[3:] {
			assert.Equal(t, []any{EventBMC, reason.Code(""), "prod"}, []any{e.Type, e.Reason, e.Cluster})
			gone[e.Node] = e
		}
		assert.Contains(t, gone["n-0"].Message, "BMC ipmi://bmc-0:623 of prod/n-0 is not checked any more")
		assert.Contains(t, gone["n-2"].Message, "BMC ipmi://bmc-2:623 of prod/n-2 is not checked any more")
		w.wait(time.Hour)
		assert.Len(t, w.events, 5, "once")
	})
}

func TestWithoutAnIntervalNothingIsSwept(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	w.runEvery(t, 0, func(t *testing.T) {
		w.wait(3 * time.Hour)
		assert.Empty(t, m.reads)
		assert.Equal(t, StateUnchecked, w.result(t, 1).State)
		got := must.Do(w.sweep.Test(t.Context(), "", "n-1"))(t)
		assert.Equal(t, StateOK, got[0].State)
		w.wait(3 * time.Hour)
		assert.Len(t, m.reads, 1)
	})
}

// The shipped actors and IPMI client, against BMCs on a real socket: a good one,
// one that takes another password, and a closed port.
func TestSweepOfRealBMCs(t *testing.T) {
	w := newWorld()
	good := peer(t, w, 0, "a long random one")
	other := peer(t, w, 1, "another")
	gone := peer(t, w, 2, "a long random one")
	gone.Stop()
	timing := bmc.Timing{ReadTimeout: 20 * time.Second, SendTimeout: 20 * time.Second}
	actors := power.NewActors(func(d bmc.Device) (bmc.Power, error) { return ipmi.New(d, timing), nil })
	w.sweep = New(Options{Engine: w, Open: actors.Patient(), Urgent: actors.Urgent(), LockOut: newLockOut(t), Every: time.Second, ReadTimeout: timing.ReadTimeout,
		Concurrency: DefaultConcurrency, OnEvent: func(event.Event) {}, OnLatency: func(bmc.Driver, time.Duration) {}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.sweep.Run(ctx) }()
	require.Eventually(t, func() bool {
		all, err := w.sweep.Results(t.Context(), "prod")
		return err == nil && len(all) == 3 && all[0].State == StateOK && !all[0].Checked.IsZero() && !all[1].Checked.IsZero() && !all[2].Checked.IsZero()
	}, time.Minute, 20*time.Millisecond)

	r := w.result(t, 0)
	assert.Equal(t, StateOK, r.State)
	assert.Equal(t, bmc.On, r.Power)
	assert.Positive(t, r.Latency)
	assert.Equal(t, reason.Code("BMCAuth"), w.result(t, 1).Reason)
	assert.False(t, w.result(t, 1).Dependable)
	assert.Contains(t, []reason.Code{"BMCRefused", "BMCUnreachable"}, w.result(t, 2).Reason)

	audited := must.Do(w.sweep.Audit(t.Context(), "prod", "n-0"))(t)
	assert.Empty(t, audited[0].AuditProblem)
	stop()
	require.NoError(t, <-ended)
	assert.Zero(t, good.Sessions(), "no session is left behind")
	assert.Zero(t, other.Sessions())
	counts := good.Counts()
	assert.Zero(t, counts.Off+counts.On, "nothing was switched")
	assert.Zero(t, other.Counts().Status)
}

// peer is a BMC and its host in the inventory, whose configured password is always
// the same.
func peer(t *testing.T, w *world, n int, password string) *ipmisim.GoBMC {
	t.Helper()
	uuid := "4c4c4544-0011-0000-8000-00000000000" + strconv.Itoa(n)
	b := must.Do(ipmisim.StartGo(t.Context(), ipmisim.Options{User: "fence", Password: password, UUID: uuid}))(t)
	t.Cleanup(b.Stop)
	e := must.Do(bmc.ParseEndpoint("ipmi://" + b.Addr()))(t)
	w.device(n, bmc.Device{Driver: bmc.DriverIPMI, Endpoint: e, Username: "fence", Password: bmc.NewSecret("a long random one")})
	w.subjects[n].SystemUUID = uuid
	return b
}

// A host whose password may be sent by now, because a person has enrolled it, is read as soon as the inventory says so.
func TestEnrolledHostIsReadSoon(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	w.subjects[0].Withheld = &reason.Refusal{Reason: reason.NotEnrolled, Message: "nobody has enrolled it"}
	w.run(t, func(t *testing.T) {
		w.wait(3 * every)
		require.Empty(t, m.reads)
		w.change(func() { w.subjects[0].Withheld = nil })
		w.sweep.ReadInventory()
		w.wait(serviceGap + time.Second)
		assert.Len(t, m.reads, 1)
	})
}

// After an order or a run the devices of that host alone are polled as soon as their BMC may be asked again.
func TestAHostIsPolledSoon(t *testing.T) {
	w := newWorld()
	one, two := w.host(1), w.host(2)
	w.run(t, func(t *testing.T) {
		w.wait(3 * every)
		for quiet := 20 * time.Second; time.Until(w.result(t, 1).Next) < quiet || time.Until(w.result(t, 2).Next) < quiet; { // neither is about to be read anyway
			w.wait(time.Second)
		}
		w.wait(serviceGap + time.Second)
		before, other := len(one.reads), len(two.reads)
		w.sweep.PollSoon("prod", "")
		w.sweep.PollSoon("another", "n-1")
		w.wait(time.Second)
		require.Equal(t, []int{before, other}, []int{len(one.reads), len(two.reads)})
		w.sweep.PollSoon("prod", "n-1")
		w.wait(time.Second)
		assert.Equal(t, []int{before + 1, other}, []int{len(one.reads), len(two.reads)})
	})
}
