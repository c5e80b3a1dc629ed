package run

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

const (
	// SaveRetry is the pause after a record could not be saved.
	SaveRetry = time.Second
	// deletionSeen is for how long a run does not look at the Machine that it has just deleted.
	deletionSeen = time.Second
	// LookTimeout bounds one look at the BMC, and one at the cluster.
	LookTimeout = power.AgentReadTimeout + 10*time.Second
)

// worker drives one open run. Its own goroutine alone uses the fields, except inbox.
type worker struct {
	r       *Runner
	id      string
	run     remediate.Run
	power   powerAccess
	backups savedBackups
	inbox   *inbox // orders of people
	// admitted is the look that admitted the run; nil if there is none, or it was used.
	admitted *Admitted
	names    []string // under which people may have stopped the target, as the last look knew them
	clock    wallClock
	pending  pendingHeld
	lock     nodeLock

	restored   restored // what became of the last attempt to restore the Node
	hadSession bool     // this process has opened a session with the host's BMC
	// powerFailure and clusterFailure are what was last told of reads that failed.
	powerFailure, clusterFailure readFailure
	ownershipLost                bool // another instance owns the cluster and continues the run
}

// loop looks, asks, saves and acts until the run or ctx ends. When ctx ends, loop finishes only
// the save and the action that are in progress.
func (w *worker) loop(ctx context.Context) {
	defer w.end(ctx)
	for !w.run.Step.Ended() {
		var d decision
		d.seen, d.backups, d.backup = w.look(ctx)
		if ctx.Err() != nil { // the look was interrupted, so it proves nothing
			return
		}
		w.takeOrders(ctx) // a look can be slow
		d.from = w.run
		next, action, wait := remediate.Next(w.run, d.seen, time.Now())
		next, d.action = w.pending.take(w.run, next, action)
		if !w.commit(ctx, next) {
			w.pending.note(w.run, next)
			if w.ownershipLost {
				return
			}
			wait = SaveRetry // without a durable record there is no action // I19
		} else if d.action != remediate.Nothing {
			w.act(ctx, d)
			wait = lookAgainAfter(d.action, wait)
		}
		if !w.sleep(ctx, wait) {
			return
		}
	}
}

// lookAgainAfter is when to look again after an action. remediate.Next wants to see at once what
// became of it. What became of a deletion does not matter to anything but the end of the run, and
// the same deletion is not sent again before that. When many Machines fail at the same moment,
// such looks would take the API server's time from those that are still to be deleted.
func lookAgainAfter(a remediate.Action, wait time.Duration) time.Duration {
	if a == remediate.DeleteTargetMachine {
		return max(wait, deletionSeen)
	}
	return wait
}

func (w *worker) end(ctx context.Context) {
	w.power.drop(ctx)
	defer w.unlockNode(ctx) // last: nobody waits for it
	w.r.mu.Lock()
	delete(w.r.workers, w.id)
	w.r.mu.Unlock()
	w.inbox.close(ErrEnded(w.id))
	w.r.opt.Cluster.Wake()
}

// commit saves the record if it changed, and emits a new step. After a conflict another owner
// has written the record, so commit reads it again.
func (w *worker) commit(ctx context.Context, next remediate.Run) bool {
	if reflect.DeepEqual(next, w.run) {
		w.clock.saved = true
		return true
	}
	if next.Step.Ended() {
		w.r.opt.Hosts.Distrust(context.WithoutCancel(ctx), next) // before the save: nobody looks at a saved end again
	}
	saved, err := w.r.opt.Cluster.Save(context.WithoutCancel(ctx), next)
	if err != nil {
		w.emit(event.Event{Type: event.Failed, Message: "save the run: " + err.Error()})
		if w.ownershipLost = errors.Is(err, state.ErrNotOwner); w.ownershipLost { // I19
			return false
		}
		w.reread(ctx)
		return false
	}
	w.adopt(ctx, saved)
	w.clock.saved = true
	return true
}

// reread reads the run from the store after a save that the store did not confirm: the save may
// have been done, and the run may have ended with it.
func (w *worker) reread(ctx context.Context) {
	r, err := state.GetRun(ctx, w.r.opt.Lead.Store(), w.run.ID)
	if err != nil {
		return
	}
	w.r.opt.Cluster.Show(r)
	w.adopt(ctx, r)
}

// adopt continues with a record that is durable, and emits a new step.
func (w *worker) adopt(ctx context.Context, saved remediate.Run) {
	stepped := saved.Step != w.run.Step || len(saved.Steps) != len(w.run.Steps) // the latter: another attempt, or another power level
	due := saved.Step == remediate.Waiting && saved.Wait.Due && !(w.run.Wait != nil && w.run.Wait.Due)
	w.run = saved
	if due {
		w.r.opt.Cluster.Wake()
	}
	if !stepped {
		return
	}
	w.powerFailure, w.clusterFailure = readFailure{}, readFailure{} // status shows the errors of the present step
	w.emit(event.Event{Type: event.Stepped, Reason: saved.Reason, Message: lastNote(saved)})
	if saved.Step == remediate.DeleteNode && !saved.IsolatesOnConfirmation() { // on a confirmation nobody has compared the identity
		w.r.opt.Hosts.PinProven(ctx, saved)
	}
	w.r.opt.Cluster.Wake() // slots and overlaps changed
}

func lastNote(r remediate.Run) string {
	if r.Step.Ended() || r.Step.Idle() {
		return r.Note
	}
	if n := len(r.Steps); n > 1 {
		return r.Steps[n-2].Note
	}
	return ""
}

// sleep waits for a time, or until an order arrives or Kick is called. It returns false if ctx
// ended.
func (w *worker) sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-w.inbox.wake:
	case <-timer.C:
	}
	w.takeOrders(ctx)
	return ctx.Err() == nil
}

func (w *worker) emit(e event.Event) {
	e.Node, e.Machine, e.Run, e.Step = w.run.Target.Node, w.run.Target.WithoutNode(), w.run.ID, w.run.Step
	w.r.emit(e)
}

// order is a person's order to one run: a change of its record, or a refusal. The worker applies
// it between two looks. done receives nil once the change is durable, or the error.
type order struct {
	change func(remediate.Run) (remediate.Run, error)
	event  event.Event // reports the order
	done   chan error
}

// inbox holds the orders to one run until its worker takes them.
type inbox struct {
	wake chan struct{} // an order may have arrived, or a person may have stopped something

	mu     sync.Mutex
	list   []order
	closed bool
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put adds an order. It returns false if the worker has ended.
func (b *inbox) put(o order) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.list = append(b.list, o)
	b.kick()
	return true
}

// kick makes the worker look again now.
func (b *inbox) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// hasOrders reports whether an order has arrived that the record does not show yet.
func (b *inbox) hasOrders() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.list) > 0
}

// take removes and returns the orders, the oldest first.
func (b *inbox) take() []order {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	return list
}

// close refuses every order that was not taken, and all later ones.
func (b *inbox) close(why error) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	for _, o := range b.take() {
		o.done <- why
	}
}

// takeOrders applies the orders of people to the record, where the record allows them.
func (w *worker) takeOrders(ctx context.Context) {
	for _, o := range w.inbox.take() {
		next, err := o.change(w.run)
		if err == nil {
			if o.event.Actor != remediate.SelfActor { // only a person may have mended an account
				w.power.retryAccount(ctx, w.run)
			}
			err = w.apply(ctx, o.event, next)
		}
		o.done <- err
	}
}

// apply stores what an order makes of the run. It first records who gave the order, so that no
// crash leaves the effect alone. If that cannot be recorded, apply goes on: the order may bring a
// host back, and every destructive action that follows is recorded by itself. // I24
func (w *worker) apply(ctx context.Context, ev event.Event, next remediate.Run) error {
	ev, recordError := w.r.opt.Cluster.Record(ev)
	ev.Recorded = ev.Recorded && recordError == nil
	saved, err := w.r.opt.Cluster.Save(ctx, next)
	if err != nil {
		w.emit(event.Event{Type: event.Failed, Actor: ev.Actor, Why: ev.Why, Message: "save that " + ev.Message + ": " + err.Error()})
		w.reread(ctx) // it may have been stored all the same
		return err
	}
	w.r.emit(ev)
	w.run = saved
	return nil
}

// pendingHeld is a step into Held that the store did not save. It is kept because its reason,
// like one On reading that contradicts a confirmation, may not be observed again. // I5, I26
type pendingHeld struct {
	next *remediate.Run // nil if there is none
}

// note keeps next, which could not be saved in place of run, if it is a step into Held.
func (p *pendingHeld) note(run, next remediate.Run) {
	if next.Step == remediate.Held && run.Step != remediate.Held {
		p.next = &next
	}
}

// take returns the pending step in place of the answer to a later look, once. If run has changed
// since, or if there is no pending step, it returns the answer.
func (p *pendingHeld) take(run, next remediate.Run, a remediate.Action) (remediate.Run, remediate.Action) {
	held := p.next
	p.next = nil
	if held == nil || held.Version != run.Version {
		return next, a
	}
	return *held, remediate.Nothing
}
