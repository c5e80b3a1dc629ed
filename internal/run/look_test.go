package run

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/wall"
)

// Machines that are still to be deleted are looked at before those that are deleted.
func TestLookQueue(t *testing.T) {
	r := New(Options{})
	for step, want := range map[remediate.Step]*queue{remediate.PowerOff: r.looks, remediate.Reprovision: r.deleted} {
		w := &worker{r: r, run: remediate.Run{Step: step, Intent: remediate.Intent{Action: remediate.DeleteTargetMachine}}}
		assert.Same(t, want, w.lookQueue(), step)
		w.run.Intent.Action = remediate.Nothing
		assert.Same(t, r.looks, w.lookQueue(), step)
	}
}

// Only a run that does no more than replace a Machine begins with the look that admitted it, only
// once, and only while that look is young and complete. // I4, I12
func TestAdmittedLookIsTaken(t *testing.T) {
	young := time.Now().Add(time.Hour) // however busy the machine is
	fits := remediate.Run{Strategy: remediate.DeleteMachine}
	for name, c := range map[string]struct {
		change func(*remediate.Run)
		look   *Admitted
		want   bool
	}{
		"a young one":     {look: &Admitted{At: young}, want: true},
		"none":            {},
		"an old one":      {look: &Admitted{At: time.Now().Add(-admittedFor)}},
		"from no probe":   {look: &Admitted{}},
		"an error":        {look: &Admitted{At: young, Fresh: Fresh{Err: errors.New("no answer")}}},
		"a power cycle":   {look: &Admitted{At: young}, change: func(r *remediate.Run) { r.Strategy = remediate.PowerCycle }},
		"a control plane": {look: &Admitted{At: young}, change: func(r *remediate.Run) { r.ControlPlane = true }},
		"an order":        {look: &Admitted{At: young}, change: func(r *remediate.Run) { r.Manual = &remediate.Order{} }},
	} {
		w := &worker{run: fits, admitted: c.look}
		if c.change != nil {
			c.change(&w.run)
		}
		assert.Equal(t, c.want, w.takeAdmitted() != nil, name)
		assert.Nil(t, w.takeAdmitted(), name)
	}
}

// What is read after a confirmation contradicts it, also where the clock was set back in between. // I16, I26
func TestOnContradictsAConfirmationAfterTheClockWasSetBack(t *testing.T) {
	now := time.Now()
	var checked hosts.LastCheck
	p := powerAccess{opt: &Options{LastChecks: func(string, string) []hosts.LastCheck { return []hosts.LastCheck{checked} }}}
	r := remediate.Run{Target: remediate.Target{Host: "h"}, Confirmed: &remediate.Order{At: now.Add(-time.Second).UTC().Round(0)}}
	assert.Empty(t, p.heardOn(r))
	for _, set := range []time.Duration{-time.Minute, time.Minute} {
		checked.LastOn = wall.Set(now.Add(10*time.Second), set)
		assert.NotEmpty(t, p.heardOn(r), set)
		checked.LastOn = wall.Set(now.Add(-2*time.Second), set)
		assert.Empty(t, p.heardOn(r), set)
	}
}

// reads is a device that reads one state, and accepts each command.
type reads bmc.PowerState

func (r reads) Read(context.Context) (bmc.Reading, error) {
	return bmc.Reading{State: bmc.PowerState(r), At: time.Now(), Session: 1}, nil
}

func (reads) Send(context.Context, bmc.Command) (bmc.Receipt, error) { return bmc.Receipt{}, nil }

func (reads) Close(context.Context) error { return nil }

// What a witness has read On since a confirmation contradicts it, also if the run sends an Off before it looks again. // I26
func TestOnThatIsReadBeforeAnOffContradictsAConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := bmc.Host{Name: "h", Levels: []bmc.Level{
			{Devices: []bmc.Device{{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Host: "192.0.2.1"}}}},
			{Devices: []bmc.Device{{Driver: bmc.DriverFenceAgent, Endpoint: bmc.Endpoint{Host: "192.0.2.200"}}}},
		}}
		p := powerAccess{opt: &Options{}, session: must.Do(power.Open(func(d bmc.Device) (bmc.Power, error) {
			if d.IsNative() {
				return reads(bmc.On), nil
			}
			return reads(bmc.Unknown), nil
		}, h, 1, power.ReadTiming{ReadTimeout: time.Second, OffReadSpacing: time.Second}))(t)}
		r := remediate.Run{Confirmed: &remediate.Order{At: time.Now()}}
		p.since(r)
		time.Sleep(time.Second)
		must.Do(p.session.Read(t.Context()))(t)
		time.Sleep(time.Second) // the witness has answered
		require.NoError(t, p.send(t.Context(), r, bmc.CommandOff))
		assert.NotEmpty(t, p.heardOn(r))
		p.drop(t.Context(), r)
	})
}

// What the run's own level has read On since a person confirmed contradicts that, also if the run took the confirmation in only later: the
// evidence is gathered in between, and a BMC that answers now and then may have answered only the run. // I26
func TestOnThatIsReadBeforeAConfirmationIsTakenInContradictsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := bmc.Host{Name: "h", Levels: []bmc.Level{{Devices: []bmc.Device{{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Host: "192.0.2.1"}}}}}}
		p := powerAccess{opt: &Options{}, session: must.Do(power.Open(func(bmc.Device) (bmc.Power, error) { return reads(bmc.On), nil }, h, 0,
			power.ReadTiming{ReadTimeout: time.Second, OffReadSpacing: time.Second}))(t)}
		waiting := remediate.Run{}
		read := func() remediate.Run {
			confirmed := remediate.Run{Confirmed: &remediate.Order{At: time.Now()}}
			time.Sleep(time.Second)
			require.NotEmpty(t, p.proofLost(t.Context(), waiting))
			time.Sleep(time.Second)
			return confirmed
		}
		assert.Contains(t, p.heardOn(read()), "192.0.2.1 reads On")
		read()
		assert.Empty(t, p.heardOn(remediate.Run{Confirmed: &remediate.Order{At: time.Now()}}), "the host was switched off since")
		p.drop(t.Context(), waiting)
	})
}

// A person's word isolates a Node beside a look as fresh as a proof. Pods are released only on a proof, whatever a person has said. // I1, I26
func TestWordReleasesNoPods(t *testing.T) {
	now := time.Now()
	said := remediate.Run{Proof: remediate.ProofHuman, Confirmed: &remediate.Order{}, Confirmation: &remediate.OffConfirmation{}}
	unread := &power.Session{}
	for _, c := range []struct {
		run     remediate.Run
		action  remediate.Action
		session *power.Session
		want    bool
	}{
		{said, remediate.IsolateNode, nil, true},
		{said, remediate.ReleasePods, nil, false},
		{said, remediate.ReleasePods, unread, false},
		{remediate.Run{}, remediate.IsolateNode, nil, false},
		{remediate.Run{}, remediate.IsolateNode, unread, false},
	} {
		p := powerAccess{session: c.session}
		assert.Equal(t, c.want, p.proven(c.run, c.action, remediate.Observation{At: now.Add(time.Hour)}), c.action)
	}
}

func TestQueueGoesByDueTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{size: 1}
		require.True(t, q.enter(t.Context(), time.Now()))
		var order []string
		for _, w := range []struct {
			name string
			due  time.Duration
		}{{"first look", overtakeLimit}, {"another", overtakeLimit}, {"proof under way", 0}, {"late", -time.Second}} {
			go func() {
				require.True(t, q.enter(t.Context(), time.Now().Add(w.due)))
				order = append(order, w.name)
				q.leave()
			}()
			synctest.Wait()
		}
		assert.Empty(t, order)
		q.leave()
		synctest.Wait()
		assert.Equal(t, []string{"late", "proof under way", "first look", "another"}, order)
		assert.Zero(t, q.inside)
	})
}

// However many urgent ones arrive, one that is not urgent is admitted after overtakeLimit.
func TestQueueStarvesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{size: 2}
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 { // always more than there is room for
			go func() {
				for ctx.Err() == nil && q.enter(ctx, time.Now()) {
					time.Sleep(100 * time.Millisecond)
					q.leave()
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		require.True(t, q.enter(ctx, time.Now().Add(overtakeLimit)))
		assert.InDelta(t, overtakeLimit, time.Since(began), float64(time.Second))
		q.leave()
		cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, q.inside)
		assert.Empty(t, q.waiting)
	})
}

// A waiter that gives up occupies no place, even if it is admitted at that moment.
func TestQueueFreesThePlaceOfAWaiterThatGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{size: 3}
		var inside, most atomic.Int64
		for i := range 200 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%17)*10*time.Millisecond)
				defer cancel()
				if !q.enter(ctx, time.Now().Add(time.Duration(i%5)*time.Millisecond)) {
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(10 * time.Millisecond)
				inside.Add(-1)
				q.leave()
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, q.inside)
		assert.Empty(t, q.waiting)
		assert.EqualValues(t, 3, most.Load())
	})
}

// After a start, and after the clock was set, the record was saved by another clock. // I16
func TestClockThatWasSetIsAnotherClock(t *testing.T) {
	var c wallClock
	now := time.Now()
	assert.True(t, c.unsaved(now), "a new process")
	assert.True(t, c.unsaved(now.Add(time.Second)), "nothing was saved yet")
	c.saved = true
	assert.False(t, c.unsaved(now.Add(time.Hour)))
	assert.False(t, c.unsaved(wall.Set(now.Add(time.Hour), time.Second)), "it is corrected all the time")
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		c.last, c.saved = now, true
		assert.True(t, c.unsaved(wall.Set(now.Add(time.Minute), by)))
		c.saved = true
		assert.False(t, c.unsaved(wall.Set(now.Add(2*time.Minute), by)))
	}
}
