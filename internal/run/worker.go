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
	// LookTimeout bounds one look at the BMC, and one at the cluster.
	LookTimeout = power.AgentReadTimeout + 10*time.Second
)

// worker drives one open run. Only its own goroutine touches its fields, except inbox.
type worker struct {
	r       *Runner
	id      string
	run     remediate.Run
	session *power.Session
	saved   []state.Backup // as they are stored; nil when that is not known
	inbox   *inbox         // orders of people
	refused string         // why the last try to restore the Node failed
	against string         // the power level that reads On although a person confirmed the host off
	ousted  bool           // another instance owns the cluster: it goes on there
	held    *remediate.Run // a step into Held that is not saved yet
	clock   wallClock
}

// loop looks, asks, saves and acts until the run ends or ctx does. A stop
// waits for the save and the action that are under way, no longer.
func (w *worker) loop(ctx context.Context) {
	defer w.end(ctx)
	for !w.run.Step.Ended() {
		var d decision
		d.seen, d.backups, d.backup = w.look(ctx)
		if ctx.Err() != nil { // a look cut short says nothing
			return
		}
		w.obey(ctx) // a look can be slow
		d.from = w.run
		next, action, wait := remediate.Next(w.run, d.seen, time.Now())
		next, d.action = w.pendingHeld(next, action)
		if !w.commit(ctx, next) {
			w.missed(next)
			if w.ousted {
				return
			}
			wait = SaveRetry // nothing is done on a record that is not durable // I19
		} else if d.action != remediate.Nothing {
			w.act(ctx, d)
		}
		if !w.pause(ctx, wait) {
			return
		}
	}
}

func (w *worker) end(ctx context.Context) {
	if w.session != nil {
		w.session.Close(ctx)
	}
	w.r.mu.Lock()
	delete(w.r.workers, w.id)
	w.r.mu.Unlock()
	w.inbox.close(ErrEnded(w.id))
	w.r.opt.Cluster.Wake()
}

// commit saves the record if it changed; take then tells of a new step. A conflict means that
// another owner wrote: the record is loaded again. False: the record is not durable.
func (w *worker) commit(ctx context.Context, next remediate.Run) bool {
	if reflect.DeepEqual(next, w.run) {
		w.clock.saved = true
		return true
	}
	if next.Step.Ended() {
		w.r.opt.Hosts.Distrust(context.WithoutCancel(ctx), next) // first: an end that is saved is not looked at again
	}
	saved, err := w.r.opt.Cluster.Save(context.WithoutCancel(ctx), next)
	if err != nil {
		w.emit(event.Event{Type: event.Failed, Message: "save the run: " + err.Error()})
		if w.ousted = errors.Is(err, state.ErrNotOwner); w.ousted { // I19
			return false
		}
		w.reread(ctx)
		return false
	}
	w.take(ctx, saved)
	w.clock.saved = true
	return true
}

// lastNote says why the step before the present one was left.
func lastNote(r remediate.Run) string {
	if r.Step.Ended() || r.Step == remediate.Held {
		return r.Note
	}
	if n := len(r.Steps); n > 1 {
		return r.Steps[n-2].Note
	}
	return ""
}

// backup saves a fresh copy of the whole Node, which SaveBackup reads back. // I21
func (w *worker) backup(ctx context.Context) error {
	data, b, err := w.r.opt.Kube.Backup(ctx, w.run.Target)
	if err != nil {
		return err
	}
	w.saved = nil
	return state.SaveBackup(ctx, w.r.opt.Lead.Store(), state.Backup{
		RunID: w.run.ID, NodeUID: b.UID, ResourceVersion: b.ResourceVersion, Saved: time.Now().UTC(), Node: data,
	})
}

// pause waits until it is time, or people want something; false when ctx ended.
func (w *worker) pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-w.inbox.wake:
	case <-timer.C:
	}
	w.obey(ctx)
	return ctx.Err() == nil
}

// mended takes it that a person has mended the credentials.
func (w *worker) mended(ctx context.Context) {
	if h, err := w.r.opt.Hosts.Entry(ctx, w.run.Target); err == nil {
		w.r.opt.LockOut.ForgetAccounts(h)
	}
	if w.session != nil && w.session.AccountRefused() {
		w.dropSession(ctx)
	}
}

func (w *worker) emit(e event.Event) {
	e.Node, e.Run, e.Step = w.run.Target.Node, w.run.ID, w.run.Step
	w.r.emit(e)
}
