package power

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

func TestUrgentGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.read = takes(10 * time.Second)
		a := NewActors(y.open)
		sweep, run := opened(t, a.Patient(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a"))
		swept := make(chan error)
		go func() { swept <- errOf(sweep.Read(t.Context())) }()
		time.Sleep(time.Second)
		start := time.Now()
		_, err := run.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err)
		assert.Zero(t, time.Since(start), "the sweep's read was cancelled")
		err = <-swept
		assert.ErrorIs(t, err, ErrInUse)
		assert.Equal(t, bmc.KindBusy, bmc.KindOf(err))
		assert.Equal(t, []string{"read a", "send off a"}, y.did())
	})
}

func TestUrgentOnesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.read = takes(time.Second)
		a := NewActors(y.open)
		var wait sync.WaitGroup
		order := make(chan int, 5)
		for i := range 5 {
			d := deviceAt("a")
			d.Endpoint.System = fmt.Sprint(i)
			p := opened(t, a.Urgent(), d)
			wait.Go(func() {
				assert.NoError(t, errOf(p.Read(t.Context())))
				order <- i
			})
			synctest.Wait()
		}
		wait.Wait()
		for i := range 5 {
			assert.Equal(t, i, <-order)
		}
	})
}

// TestDescribeGivesWay: nobody's curiosity delays a run, and what is asked after
// is asked again.
func TestDescribeGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		a := NewActors(func(d bmc.Device) (bmc.Power, error) {
			p, err := y.open(d)
			return &talking{p.(*fakePower), func(ctx context.Context) (bmc.Description, error) { return bmc.Description{}, pause(ctx, time.Minute) }}, err
		})
		person, run := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a"))
		told := make(chan error)
		go func() { told <- errOf(person.(bmc.Describer).Describe(t.Context())) }()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, errOf(run.Read(t.Context())))
		assert.Zero(t, time.Since(start))
		assert.ErrorIs(t, <-told, ErrInUse)
	})
}

func TestWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.read = takes(10 * time.Second)
		a := NewActors(y.open)
		p, q := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a"))
		reading := make(chan error)
		go func() { reading <- errOf(p.Read(t.Context())) }()
		synctest.Wait()
		start := time.Now()
		_, err := q.Send(within(t, time.Second), bmc.CommandOff)
		assert.Equal(t, time.Second, time.Since(start))
		e, ok := errors.AsType[*bmc.Error](err)
		require.True(t, ok)
		assert.Equal(t, bmc.KindBusy, e.Kind)
		assert.Equal(t, bmc.SentNo, e.Sent)
		assert.ErrorIs(t, err, ErrInUse)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Contains(t, err.Error(), "read power state", "it says what is in the way")
		require.NoError(t, <-reading)
		synctest.Wait()
		assert.Equal(t, []string{"read a"}, y.did(), "a command whose caller left is never sent")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = q.Send(ended, bmc.CommandOff)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Len(t, y.did(), 1)
	})
}

func TestPatientWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		a := NewActors(y.open)
		run, sweep := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Patient(), deviceAt("a"))
		other := opened(t, a.Patient(), deviceAt("a"))
		took := func(p bmc.Power) time.Duration {
			start := time.Now()
			require.NoError(t, errOf(p.Read(t.Context())))
			return time.Since(start)
		}
		assert.Zero(t, took(sweep), "nobody used it yet")
		assert.Zero(t, took(sweep), "one visit asks all it wants")
		assert.Equal(t, time.Second, took(other), "another sweep comes later")
		assert.Zero(t, took(run), "a run never waits for quiet")
		assert.Zero(t, took(run))
		assert.Equal(t, 5*time.Second, took(sweep), "a run that polls is left alone")
		assert.Equal(t, time.Second, took(other))

		assert.Zero(t, took(run))
		start := time.Now()
		_, err := sweep.Read(within(t, 3*time.Second))
		assert.ErrorIs(t, err, ErrInUse, "which says nothing against the BMC")
		assert.Equal(t, 3*time.Second, time.Since(start))
		for _, p := range []bmc.Power{run, sweep, other} {
			require.NoError(t, p.Close(t.Context()))
		}
		quiet(t, a)
	})
}

// TestRunsStarveSweepsOnly: as long as a run polls, the sweep does not disturb
// its session, and gives up by its own deadline.
func TestRunsStarveSweepsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		a := NewActors(y.open)
		run, sweep := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Patient(), deviceAt("a"))
		require.NoError(t, errOf(run.Read(t.Context())))
		swept := make(chan error)
		go func() { swept <- errOf(sweep.Read(within(t, 30*time.Second))) }()
		for range 20 {
			start := time.Now()
			require.NoError(t, errOf(run.Read(t.Context())))
			assert.Zero(t, time.Since(start))
			time.Sleep(3 * time.Second) // the spacing of a proof
		}
		assert.ErrorIs(t, <-swept, ErrInUse)
		assert.Len(t, y.did(), 21, "the sweep's read was never sent")
	})
}
