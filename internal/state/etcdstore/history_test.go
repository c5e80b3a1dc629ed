package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
)

// history records what several instances did, and when. porcupine then looks for an order of
// the operations that explains it.
type history struct {
	begin time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.begin)) }

// never is the return time of an operation that may take effect at any later time.
const never = math.MaxInt64

func (h *history) add(call, ret int64, input, output any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: input, Call: call, Output: output, Return: ret})
}

func (h *history) check(t *testing.T, what string, m porcupine.Model) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Logf("%s: %d operations", what, len(h.ops))
	require.NotEmpty(t, h.ops)
	result := porcupine.CheckOperationsTimeout(m, h.ops, decideTime)
	require.NotEqual(t, porcupine.Illegal, result, "no order explains the history of %s", what)
	require.Equal(t, porcupine.Ok, result, "the history of %s was not decided within %s: it proves nothing, and must be shorter", what, decideTime)
}

// decideTime is much longer than porcupine needs for such a history.
const decideTime = 5 * time.Minute

// ownerOp is an operation on the register of a cluster's owner.
type ownerOp struct {
	kind    string // claim, write, end
	cluster string
	epoch   uint64
}

// ownerModel is a register that holds the epoch of the acting owner, or 0, and the last epoch.
// A claim requires that nobody acts and that its epoch is larger than all before. An end starts
// when the context or the time of the callback is over: if the next callback was called before
// that, no order is possible. A write is accepted until the next claim. It is refused only to
// an owner that no longer acts.
func ownerModel() porcupine.Model {
	type owner struct{ acts, last uint64 }
	return porcupine.Model{
		Partition: byCluster,
		Init:      func() any { return owner{} },
		Step: func(current, input, output any) (bool, any) {
			s, op := current.(owner), input.(ownerOp)
			switch {
			case op.kind == "claim":
				return s.acts == 0 && op.epoch > s.last, owner{op.epoch, op.epoch}
			case op.kind == "end":
				return s.acts == op.epoch, owner{0, s.last}
			case output.(bool):
				return s.last == op.epoch, s
			}
			return s.acts != op.epoch, s
		},
	}
}

func byCluster(all []porcupine.Operation) [][]porcupine.Operation {
	found := map[string][]porcupine.Operation{}
	for _, op := range all {
		c := op.Input.(ownerOp).cluster
		found[c] = append(found[c], op)
	}
	return slices.Collect(maps.Values(found))
}

// slotOp takes a slot for a run, or frees it.
type slotOp struct {
	take bool
	run  string
}

// slotModel is the set of the runs that have a slot: at most limit.
func slotModel(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(current, input, output any) (bool, any) {
			held := strings.Fields(current.(string))
			op := input.(slotOp)
			held = slices.DeleteFunc(held, func(run string) bool { return run == op.run })
			if op.take && output.(bool) {
				held = append(held, op.run)
				slices.Sort(held)
			}
			return len(held) <= limit, strings.Join(held, " ")
		},
	}
}

// recordClaims returns a callback that records its claim, and writes under the claim and records
// the results.
func (h *history) recordClaims(began int64) func(context.Context, state.Claim) {
	return func(ctx context.Context, c state.Claim) {
		h.add(began, h.now(), ownerOp{"claim", c.Cluster, c.Epoch}, true)
		key := "of-" + c.Cluster
		for ctx.Err() == nil {
			r, err := c.Store.Get(ctx, state.KindRun, key)
			if err != nil && !errors.Is(err, state.ErrNotFound) {
				continue
			}
			call := h.now()
			_, err = c.Store.Put(ctx, state.Record{Kind: state.KindRun, Key: key, Version: r.Version, Data: fmt.Append(nil, c.Epoch)})
			switch { // after any other error the result is unknown
			case err == nil:
				h.add(call, h.now(), ownerOp{"write", c.Cluster, c.Epoch}, true)
			case errors.Is(err, state.ErrNotOwner):
				h.add(call, h.now(), ownerOp{"write", c.Cluster, c.Epoch}, false)
			}
			pause(ctx, 50*time.Millisecond)
		}
		// After Until nobody acts, however late the scheduler runs this goroutine:
		// TestGuardEndsWithItsTime shows that ctx ends then.
		ended := min(h.now(), int64(c.Until().Sub(h.begin)))
		h.add(ended, never, ownerOp{"end", c.Cluster, c.Epoch}, true)
		// One more write, like that of an engine that ignores Until.
		call := h.now()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), brief.ttl)
		defer cancel()
		_, err := c.Store.Put(late, state.Record{Kind: state.KindRun, Key: fmt.Sprint("late-", c.Epoch)})
		if err == nil || errors.Is(err, state.ErrNotOwner) {
			h.add(call, h.now(), ownerOp{"write", c.Cluster, c.Epoch}, err == nil)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// slots takes and frees slots for one run until ctx ends.
func (h *history) slots(ctx context.Context, s state.Store, random *rand.Rand, run string, limit int) {
	for ctx.Err() == nil {
		call := h.now()
		ok, err := statetest.TakeSlot(ctx, s, limit, state.Slot{Cluster: "c", Run: run})
		if err == nil {
			h.add(call, h.now(), slotOp{take: true, run: run}, ok)
		}
		pause(ctx, upTo(random, 50*time.Millisecond))
		for call = h.now(); ; { // also if it is unknown whether one was taken
			if statetest.FreeSlot(context.WithoutCancel(ctx), s, run) == nil {
				break
			}
		}
		h.add(call, h.now(), slotOp{run: run}, true)
	}
}
