package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

const (
	// actMargin is what must be left of a claim when a command is begun: one that
	// is cut short may or may not have been carried out. // I19
	actMargin  = time.Second
	claimRetry = time.Second // after the records of a claimed cluster could not be read
)

// leadership is the time in which this instance owns a cluster. All that acts there runs
// in it, and has ended when it is over.
type leadership struct {
	claim  state.Claim
	awake  awake // it does not outlast a suspend
	notice leaseStatus
	settle chan struct{}   // runs may have begun or ended: their slots are to be settled
	lost   <-chan struct{} // closed when the claim is lost, or is to be given up
	run    func(func(context.Context))

	mu     sync.Mutex
	over   bool
	inside sync.WaitGroup
}

func newLeadership(ctx context.Context, claim state.Claim, a awake) *leadership {
	t := &leadership{claim: claim, awake: a, settle: make(chan struct{}, 1), lost: ctx.Done()}
	t.run = func(f func(context.Context)) { t.inside.Go(func() { f(ctx) }) }
	return t
}

// spawn runs f in the tenure; false when that is over.
func (t *leadership) spawn(f func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.run(f)
	return true
}

// enter keeps the tenure from ending until leave is called; false when it is over.
func (t *leadership) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.inside.Add(1)
	}
	return !t.over
}

func (t *leadership) leave() { t.inside.Done() }

// end waits until all that runs in the tenure has stopped, and lets nothing more begin.
func (t *leadership) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.inside.Wait()
}

// guard acts on one cluster until its claim ends, in one tenure after the other where
// this host is suspended in between.
func (e *Engine) guard(ctx context.Context, claim state.Claim) {
	c := e.clusters[claim.Cluster]
	for c != nil && ctx.Err() == nil {
		c.reign(ctx, claim)
	}
}

// reign is one tenure. What was remembered of a former one does not count: another
// instance may have gone on since. // I19
func (c *cluster) reign(ctx context.Context, claim state.Claim) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if until := claim.Until(); !until.IsZero() && !time.Now().Before(until) { // it is about to end
		<-ctx.Done()
		return
	}
	if !c.take(ctx, claim) {
		return
	}
	t := c.leadership.Load()
	suspended := t.awake.wait(ctx)
	stop()
	c.forget(nil) // the sessions of probes
	t.end()
	c.leadership.Store(nil)
	c.forget(nil) // of those that have just ended
	if suspended != "" {
		c.emit(event.Event{Type: event.OwnerChanged, Message: suspended + ": the state is read again"})
	} else {
		c.emit(event.Event{Type: event.OwnerChanged, Message: "gives the cluster up" + epochOf(claim)})
	}
	c.wake()
}

// epochOf names the epoch of a claim, if there can be another one.
func epochOf(claim state.Claim) string {
	if claim.Until().IsZero() {
		return ""
	}
	return fmt.Sprintf(" in epoch %d", claim.Epoch)
}

// take loads what the store holds about the cluster and resumes its open runs; false
// when the claim ended before that could be done.
func (c *cluster) take(ctx context.Context, claim state.Claim) bool {
	told := false
	for {
		err := c.load(ctx, claim)
		if err == nil {
			return true
		}
		if !told && ctx.Err() == nil {
			told = true
			c.emit(event.Event{Type: event.Failed, Message: "take the cluster over, which is tried again until it can be done: " + err.Error()})
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(claimRetry):
		}
	}
}

// load begins a tenure on what the store says now. A record that cannot be read may
// be that of an open run: then nothing is begun. // I20
func (c *cluster) load(ctx context.Context, claim state.Claim) error {
	a := c.e.stayAwake()
	err := errors.Join(c.e.reload(ctx), c.e.pins.load(ctx, c.e.opt.Store))
	if err != nil {
		return err
	}
	runs, err := c.storedRuns(ctx)
	if err != nil {
		return err
	}
	if err := c.e.freezes.complete(ctx, claim.Store, runs, c.e.classOf); err != nil {
		return err
	}
	t := newLeadership(ctx, claim, a)
	c.mu.Lock()
	c.runs, c.moved = runs, true
	c.leadership.Store(t)
	c.mu.Unlock()
	t.spawn(func(ctx context.Context) { c.keepAnnounced(ctx, t) })
	t.spawn(func(ctx context.Context) { c.keepSlots(ctx, t) })
	for _, r := range c.openRuns() {
		c.startWorker(r, nil)
	}
	c.emit(event.Event{Type: event.OwnerChanged, Message: "guards the cluster" + epochOf(claim)})
	c.wake()
	return nil
}

// spawn runs f while this instance owns the cluster; false when it does not.
func (c *cluster) spawn(f func(context.Context)) bool {
	t := c.leadership.Load()
	return t != nil && t.spawn(f)
}

// store is where what is known about the cluster is written: only in a tenure, and
// only while its epoch is the newest. // I19
func (c *cluster) store() state.Store {
	if t := c.leadership.Load(); t != nil {
		return t.claim.Store
	}
	return standby{c.e.opt.Store}
}

// standby is the store of a cluster that another instance owns: it is only read.
type standby struct{ state.Store }

// Put implements state.Store.
func (standby) Put(context.Context, state.Record) (uint64, error) { return 0, state.ErrNotOwner }

// Delete implements state.Store.
func (standby) Delete(context.Context, state.Kind, string, uint64) error { return state.ErrNotOwner }

// notOurs says why this instance may not act on the cluster; "" when it may, as far
// as the store knows.
func (c *cluster) notOurs() string {
	if c.leadership.Load() != nil {
		return ""
	}
	o := c.e.opt.Owners.Owner(c.opt.Name)
	why := fmt.Sprintf("instance %s owns the cluster (epoch %d)", o.Instance, o.Epoch)
	switch {
	case o.Epoch == 0:
		why = "no instance owns the cluster now"
	case o.Instance == c.e.opt.Instance:
		why = "this instance is about to own the cluster, or to give it up"
	}
	if o.Problem != "" {
		why += ", as far as this instance knows: " + o.Problem
	}
	return why
}

// tellOwnerless tells once that the store does not let this instance know whose the
// cluster is, or take it; told is whether that was done. It gives what was told now.
func (c *cluster) tellOwnerless(told bool) bool {
	switch why := c.e.opt.Owners.Owner(c.opt.Name).Problem; {
	case why == "":
		return false
	case !told && c.leadership.Load() == nil:
		c.emit(event.Event{Type: event.Failed, Message: "know who owns the cluster, or take it: " + why})
		return true
	}
	return told
}

// ours refuses an order that only the owner of the cluster can carry out.
func (c *cluster) ours() error {
	why := c.notOurs()
	if why == "" {
		return nil
	}
	if o := c.e.opt.Owners.Owner(c.opt.Name); o.Epoch != 0 && o.Instance != c.e.opt.Instance {
		why += "; orders are given there"
	}
	return &reason.Refusal{Reason: reason.NotOwner, Message: why}
}

// actUntil bounds an action that is begun now by what this instance may do, or says
// why it must not be begun. // I19
func (c *cluster) actUntil(ctx context.Context, hurts bool) (bounded context.Context, cancel context.CancelFunc, why string) {
	t := c.leadership.Load()
	if t == nil {
		return nil, nil, c.notOurs()
	}
	now := time.Now()
	by, why := t.until(hurts, now)
	switch {
	case why != "":
		return nil, nil, why
	case !by.IsZero() && by.Sub(now) < actMargin:
		return nil, nil, "the claim to the cluster runs out"
	}
	bounded, cancel = t.lasting(ctx, hurts, by)
	return bounded, cancel, ""
}
