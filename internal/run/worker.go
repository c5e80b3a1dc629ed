package run

import (
	"context"
	"errors"
	"reflect"
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
