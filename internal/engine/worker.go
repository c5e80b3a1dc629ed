package engine

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

const (
	actTimeout  = 15 * time.Second // one action, command and answer
	saveRetry   = time.Second
	lookTimeout = AgentReadTimeout + 10*time.Second
)

// worker drives one open run. Only its own goroutine touches run and session.
type worker struct {
	c       *cluster
	id      string
	run     remediate.Run
	session *session
	saved   []state.Backup // as they are stored; nil when that is not known
	orders  chan order     // of people
	ousted  bool           // another instance owns the cluster: it goes on there
	gone    chan struct{}  // closed when the loop has ended
}

// order is a person's wish for this run; done is closed once it is durable.
type order struct {
	unfence remediate.Order
	done    chan error
}

func (c *cluster) startWorker(r remediate.Run, s *session) {
	w := &worker{c: c, id: r.ID, run: r, session: s, orders: make(chan order), gone: make(chan struct{})}
	c.mu.Lock()
	c.workers[r.ID] = w
	c.mu.Unlock()
	if !c.spawn(w.loop) { // the claim ended meanwhile: the next owner resumes the run
		w.end(context.Background())
	}
}

// loop looks, asks, saves and acts until the run ends or ctx does. A stop
// waits for the save and the action that are under way, no longer.
func (w *worker) loop(ctx context.Context) {
	defer w.end(ctx)
	for !w.run.Step.Ended() {
		seen, backups, backup := w.look(ctx)
		if ctx.Err() != nil { // a look cut short says nothing
			return
		}
		next, action, wait := remediate.Next(w.run, seen, time.Now())
		if !w.commit(ctx, next, action) {
			if w.ousted {
				return
			}
			wait = saveRetry // nothing is done on a record that is not durable // I19
		} else if action != remediate.Nothing {
			w.act(ctx, action, seen, backups, backup)
		}
		if !w.pause(ctx, wait) {
			return
		}
	}
}

func (w *worker) end(ctx context.Context) {
	if w.session != nil {
		w.session.close(ctx)
	}
	w.c.mu.Lock()
	delete(w.c.workers, w.id)
	w.c.mu.Unlock()
	close(w.gone)
	w.c.wake()
}

// commit saves the record if it changed and tells of a new step. A conflict
// means that another owner wrote: the record is loaded again.
func (w *worker) commit(ctx context.Context, next remediate.Run, a remediate.Action) bool {
	if reflect.DeepEqual(next, w.run) {
		return true
	}
	if next.Step.Ended() {
		w.c.distrust(context.WithoutCancel(ctx), next) // first: an end that is saved is not looked at again
	}
	saved, err := w.c.save(context.WithoutCancel(ctx), next, a)
	if err != nil {
		w.emit(Event{Type: EventFailed, Message: "save the run: " + err.Error()})
		if w.ousted = errors.Is(err, state.ErrNotOwner); w.ousted { // I19
			return false
		}
		if r, err := state.GetRun(ctx, w.c.store(), w.run.ID); err == nil {
			w.run = r
		}
		return false
	}
	stepped := saved.Step != w.run.Step || len(saved.Steps) != len(w.run.Steps) // also another attempt, or another power level
	w.run = saved
	if stepped {
		w.emit(Event{Type: EventStep, Reason: saved.Reason, Message: lastNote(saved)})
		if saved.Step == remediate.DeleteNode {
			w.c.storePin(ctx, saved)
		}
		w.c.wake() // slots and overlaps changed
	}
	return true
}

func lastNote(r remediate.Run) string {
	if r.Step.Ended() || r.Step == remediate.Held {
		return r.Note
	}
	if n := len(r.Steps); n > 1 {
		return r.Steps[n-2].Note
	}
	return ""
}

// act performs one action. Its outcome is not believed: the next look sees it.
func (w *worker) act(ctx context.Context, a remediate.Action, seen remediate.Seen, backups [][]byte, b remediate.Backup) {
	if hurts(a) && w.c.e.paused(w.c) != "" { // a pause binds the very next write // I23
		return
	}
	if _, frozen := w.c.frozen(w.run.Target); hurts(a) && frozen != "" { // I5
		return
	}
	if !w.announce(a, seen) {
		return
	}
	by, why := w.c.actBy(hurts(a), time.Now())
	if why != "" { // I19, I22
		w.undone(a, why)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.actTime())
	defer cancel()
	if !by.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	var err error
	switch a {
	case remediate.SendOff:
		err = w.send(ctx, bmc.CommandOff)
	case remediate.SendOn:
		err = w.send(ctx, bmc.CommandOn)
	case remediate.BackupNode:
		err = w.backup(ctx)
	case remediate.IsolateNode:
		// Saving took time: the proof must still hold at the last moment. // I1
		if w.session == nil || !w.session.proof.Proven(time.Now()) {
			w.undone(a, "the proof of off grew old")
			return
		}
		err = w.c.opt.Kube.Act(ctx, w.run, a, backups, b)
	default:
		err = w.c.opt.Kube.Act(ctx, w.run, a, backups, b)
	}
	failpoint("acted", string(w.run.Step), string(a))
	if err != nil {
		w.emit(Event{Type: EventFailed, Action: a, Reason: failureReason(seen, err), Message: err.Error()})
	}
}

// actTime bounds one action.
func (w *worker) actTime() time.Duration {
	if w.session == nil {
		return actTimeout
	}
	return max(actTimeout, w.session.sendTime+closeTimeout)
}

// hurts says whether an action takes something away; the others bring back.
func hurts(a remediate.Action) bool {
	switch a {
	case remediate.SetHold, remediate.SendOff, remediate.IsolateNode, remediate.DeleteTargetMachine:
		return true
	}
	return false
}

func (w *worker) send(ctx context.Context, c bmc.Command) error {
	if w.session == nil {
		return &bmc.Error{Kind: bmc.KindUnreachable, Op: "send " + c.String(), Addr: w.run.Target.Address, Err: errNoSession}
	}
	return w.session.send(ctx, c)
}

// backup saves a fresh copy of the whole Node, which SaveBackup reads back. // I21
func (w *worker) backup(ctx context.Context) error {
	data, b, err := w.c.opt.Kube.Backup(ctx, w.run.Target)
	if err != nil {
		return err
	}
	w.saved = nil
	return state.SaveBackup(ctx, w.c.store(), state.Backup{
		RunID: w.run.ID, NodeUID: b.UID, ResourceVersion: b.ResourceVersion, Saved: time.Now().UTC(), Node: data,
	})
}

// pause waits, and takes a person's order when one comes; false when ctx ended.
func (w *worker) pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case o := <-w.orders:
		w.mended(ctx)
		next := w.run
		next.Unfence = &o.unfence
		saved, err := w.c.save(ctx, next, remediate.Nothing)
		if err == nil {
			w.run = saved
		}
		o.done <- err
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// mended takes it that a person has mended the credentials.
func (w *worker) mended(ctx context.Context) {
	if h, err := w.c.find(ctx, w.run.Target); err == nil {
		w.c.e.accounts.forget(h)
	}
	if w.session != nil && w.session.refused {
		w.dropSession(ctx)
	}
}

func (w *worker) emit(e Event) {
	e.Node, e.Run, e.Step = w.run.Target.Node, w.run.ID, w.run.Step
	w.c.emit(e)
}
