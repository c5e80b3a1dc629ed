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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/rig"
)

// fault is a fault of one member of etcd: a kill and a restart, or a freeze.
type fault struct {
	leader, kill bool
	lasts        time.Duration
}

// everyFault has each kind of fault once.
var everyFault = []fault{
	{leader: true, kill: true, lasts: time.Second},
	{leader: false, kill: false, lasts: time.Second},
	{leader: true, kill: false, lasts: 1500 * time.Millisecond},
	{leader: false, kill: true, lasts: time.Second},
}

// Three instances share two clusters and two slots over three members of etcd. Members are
// killed and frozen. Instances stop, or lose their connection forever. At any time a cluster
// has one owner at most, and no more slots are taken than the limit allows. Every run has the
// same faults; a soak draws them.
func TestHistoriesUnderFaults(t *testing.T) {
	t.Parallel()
	if !dice.Soak() {
		checkUnderFaults(t, everyFault)
		return
	}
	random := dice.New(t)
	for round := range 10 { // each is short enough for porcupine
		var faults []fault
		for range 5 {
			faults = append(faults, fault{random.IntN(2) == 0, random.IntN(2) == 0, time.Second + upTo(random, time.Second)})
		}
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) { checkUnderFaults(t, faults) })
	}
}

// brief lets many sessions be lost in one history. No session has to last.
var brief = times{ttl: 3 * time.Second, delay: 300 * time.Millisecond}

// upTo returns a random duration below d.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

func checkUnderFaults(t *testing.T, faults []fault) {
	c := ownEtcd(t, rig.EtcdOptions{})
	owners, slots := &history{begin: time.Now()}, &history{begin: time.Now()}
	const limit = 2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 3 {
		s := openEtcd(t, c, "/h/")
		for j := range 2 {
			run := fmt.Sprintf("r%d-%d", i, j)
			random := dice.New(t, run)
			wg.Go(func() { slots.slots(ctx, s, random, run, limit) })
		}
		name := fmt.Sprint("i", i)
		random := dice.New(t, name)
		wg.Go(func() { owners.runInstances(ctx, t, c, random, name) })
	}
	for _, f := range faults {
		pause(ctx, time.Second)
		injectFault(t, c, f)
	}
	pause(ctx, time.Second)
	cancel()
	wg.Wait()
	owners.check(t, "owners", ownerModel())
	slots.check(t, "slots", slotModel(limit))
}

// runInstances repeatedly runs an instance for a while. The instance then stops, or loses its
// connection.
func (h *history) runInstances(ctx context.Context, t *testing.T, c *rig.EtcdCluster, random *rand.Rand, name string) {
	for ctx.Err() == nil {
		s, err := openEtcdAt(etcdPath(c, "/h/"))
		if err != nil {
			pause(ctx, 100*time.Millisecond) // there may be no quorum
			continue
		}
		i := startOn(t, s, name, []string{"c0", "c1"}, brief, h.recordClaims(h.now()))
		pause(ctx, brief.ttl/2+upTo(random, brief.ttl))
		if random.IntN(2) == 0 && ctx.Err() == nil {
			assert.NoError(t, s.Close())
			pause(ctx, 2*brief.ttl) // the callback must notice by itself
		}
		i.stop(t)
		assert.NoError(t, s.Close())
	}
}

// injectFault breaks a member and repairs it. Before, all members run.
func injectFault(t *testing.T, c *rig.EtcdCluster, f fault) {
	member := awaitLeader(t, c)
	if !f.leader {
		member = (member + 1) % 3
	}
	if f.kill {
		c.Kill(member)
		pause(t.Context(), f.lasts)
		require.NoError(t, c.Restart(member))
		return
	}
	require.NoError(t, c.Freeze(member))
	pause(t.Context(), f.lasts)
	require.NoError(t, c.Thaw(member))
}

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
