package sweep

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
)

// A description is many questions. The class of a BMC rests on it, so a slow one
// has time, and one that could not be finished is seen and asked for again soon.
func TestASlowDescriptionIsWaitedFor(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.description.Model, m.tells = "R650", 8*readTimeout
	w.run(t, func(t *testing.T) {
		w.wait(3 * every)
		assert.Equal(t, "R650", w.result(t, 1).Description.Model)
		assert.Equal(t, m.takes, w.result(t, 1).Latency, "of the reading alone")
		require.Equal(t, 1, m.described)

		w.change(func() { m.tells = time.Hour })
		w.wait(describeEvery)
		r := w.result(t, 1)
		assert.Contains(t, r.DescribeProblem, "describe")
		assert.Equal(t, "R650", r.Description.Model, "as it was told before")
		assert.True(t, r.Dependable)
		before := m.described
		w.wait(describeRetry + 3*every)
		assert.Greater(t, m.described, before)

		w.change(func() { m.tells = 0 })
		w.wait(describeRetry + 3*every)
		assert.Empty(t, w.result(t, 1).DescribeProblem)
	})
}

func TestAnOrderWaitsForASlowDescription(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.description.Model, m.tells = "R650", longTimeout-time.Second
	w.run(t, func(t *testing.T) {
		got, err := w.sweep.Audit(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		assert.Equal(t, "R650", got[0].Description.Model)
		assert.Empty(t, got[0].DescribeProblem)
	})
}

func TestAnOrderedLookIsUrgentAndFresh(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.err = failing(bmc.KindAuth)
	m.weak = []bmc.Finding{{Code: bmc.FindingCipherZero, Message: "suite 0"}}
	w.run(t, func(t *testing.T) {
		w.wait(2 * every)
		require.False(t, w.result(t, 1).Dependable)
		w.change(func() { m.err = nil; m.description.Model = "R650" })
		got, err := w.sweep.Test(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		require.Len(t, got, 1)
		assert.Equal(t, 1, w.urgent)
		assert.True(t, got[0].Dependable, "one good look is enough")
		assert.Equal(t, "R650", got[0].Description.Model)
		assert.Zero(t, m.audits)
		require.Len(t, w.events, 2, "that it is dependable again is told")
		assert.Less(t, time.Until(got[0].Next), every+every/5+1, "the long pause is over")

		got, err = w.sweep.Audit(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		assert.Equal(t, bmc.FindingCipherZero, got[0].Findings[0].Code)
		assert.Zero(t, m.open)
	})
}

func TestAnOrderedLookThatCannotBeDoneSaysSo(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	w.run(t, func(t *testing.T) {
		w.wait(2 * every)
		w.change(func() { m.err = fmt.Errorf("read: %w", power.ErrInUse) })
		got, err := w.sweep.Test(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		assert.Contains(t, got[0].Problem, "in use", "an old answer is not passed off as a fresh one")

		w.change(func() { m.err, m.auditErr = nil, failing(bmc.KindSessions) })
		got, err = w.sweep.Audit(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		assert.Empty(t, got[0].Problem)
		assert.Contains(t, got[0].AuditProblem, "sessions", "no finding is not a clean bill")

		w.change(func() { m.auditErr = fmt.Errorf("audit: %w", power.ErrInUse) })
		got, err = w.sweep.Audit(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		assert.Contains(t, got[0].AuditProblem, "in use")

		_, err = w.sweep.Test(t.Context(), "prod", "n-9")
		var refusal *reason.Refusal
		require.ErrorAs(t, err, &refusal)
	})
}

func TestAnOrderIsBounded(t *testing.T) {
	w := newWorld()
	w.host(1).hangs = true
	w.run(t, func(t *testing.T) {
		began := time.Now()
		got, err := w.sweep.Audit(t.Context(), "prod", "n-1")
		require.NoError(t, err)
		assert.Equal(t, readTimeout, time.Since(began), "nothing more is asked of one that is silent")
		assert.Equal(t, StateFailed, got[0].State)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = w.sweep.Test(ctx, "prod", "n-1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, w.result(t, 1).Failures, "nobody waited for the second look")
	})
}

func TestDescribedHourlyAuditedDaily(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	w.run(t, func(t *testing.T) {
		w.wait(24*time.Hour - time.Minute)
		assert.InDelta(t, 24, m.described, 2)
		assert.Equal(t, 1, m.audits)
		before := m.described
		w.change(func() { m.uuid = "4c4c4544-0042-3510-8052-000000000001" })
		w.wait(3 * every)
		assert.Greater(t, m.described, before, "another machine is described at once")
	})
}

// The engine knows the hosts of every cluster, and that one may be seen from two.
func TestADuplicateIsAFinding(t *testing.T) {
	w := newWorld()
	w.host(1)
	w.host(2)
	w.twin = "n-2"
	w.run(t, func(t *testing.T) {
		w.wait(2 * every)
		assert.Empty(t, w.result(t, 1).Findings)
		require.Len(t, w.result(t, 2).Findings, 1)
		assert.Equal(t, bmc.FindingDuplicate, w.result(t, 2).Findings[0].Code)
		assert.Contains(t, w.result(t, 2).Findings[0].Message, "prod/n-9")
	})
}
