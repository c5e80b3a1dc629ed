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
	maxRefusal  = 500 // bytes of why a Node could not be restored
	lookTimeout = AgentReadTimeout + 10*time.Second
)

// worker drives one open run. Only its own goroutine touches run and session.
type worker struct {
	c       *cluster
	id      string
	run     remediate.Run
	session *session
	saved   []state.Backup // as they are stored; nil when that is not known
	inbox   *inbox         // orders of people
	refused string         // why the last try to restore the Node failed
	against string         // what a power level says against a person's word
	ousted  bool           // another instance owns the cluster: it goes on there
	held    *remediate.Run // a step into Held that is not saved yet
}

func (c *cluster) startWorker(r remediate.Run, s *session) {
	w := &worker{c: c, id: r.ID, run: r, session: s, inbox: newInbox()}
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
		var d decision
		d.seen, d.backups, d.backup = w.look(ctx)
		if ctx.Err() != nil { // a look cut short says nothing
			return
		}
		w.obey(ctx) // a look can be slow
		d.from = w.run
		next, action, wait := remediate.Next(w.run, d.seen, time.Now())
		next, d.action = w.insisted(next, action)
		if !w.commit(ctx, next) {
			w.missed(next)
			if w.ousted {
				return
			}
			wait = saveRetry // nothing is done on a record that is not durable // I19
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
		w.session.close(ctx)
	}
	w.c.mu.Lock()
	delete(w.c.workers, w.id)
	w.c.mu.Unlock()
	w.inbox.close(errEnded(w.id))
	w.c.wake()
}

// commit saves the record if it changed and tells of a new step. A conflict
// means that another owner wrote: the record is loaded again.
func (w *worker) commit(ctx context.Context, next remediate.Run) bool {
	if reflect.DeepEqual(next, w.run) {
		return true
	}
	if next.Step.Ended() {
		w.c.distrust(context.WithoutCancel(ctx), next) // first: an end that is saved is not looked at again
	}
	saved, err := w.c.save(context.WithoutCancel(ctx), next)
	if err != nil {
		w.emit(Event{Type: EventFailed, Message: "save the run: " + err.Error()})
		if w.ousted = errors.Is(err, state.ErrNotOwner); w.ousted { // I19
			return false
		}
		w.reread(ctx)
		return false
	}
	w.take(ctx, saved)
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
func (w *worker) act(ctx context.Context, d decision) {
	a := d.action
	if hurts(a) && w.forbidden() != "" || !w.announce(a, d.seen) {
		return
	}
	if hurts(a) {
		var why string
		if d, why = w.lastMoment(ctx, d); why != "" {
			w.undone(a, why)
			return
		}
	}
	seen, backups, b := d.seen, d.backups, d.backup
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.actTime())
	defer cancel()
	ctx, end, why := w.c.actUntil(ctx, hurts(a))
	if why != "" { // I19, I22
		w.undone(a, why)
		return
	}
	defer end()
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
		if !w.proven(seen) {
			w.undone(a, "the proof of off grew old")
			return
		}
		err = w.c.opt.Kube.Act(ctx, w.run, a, backups, b)
	case remediate.RestoreTargetNode:
		err = w.c.opt.Kube.Act(ctx, w.run, a, backups, b)
		w.refused = textOf(err)
	default:
		err = w.c.opt.Kube.Act(ctx, w.run, a, backups, b)
	}
	if err != nil {
		w.emit(Event{Type: EventFailed, Action: a, Reason: failureReason(seen, err), Message: err.Error()})
	}
}

// textOf is what a refusal of the API server says, for a record: who admits writes
// may have written it.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return bmc.Printable(err.Error(), maxRefusal)
}

// proven says whether what step 2 rests on still holds at the last moment: saving
// took time. A person's word holds as long as the look that found nothing against it
// is as fresh as a proof must be. // I1, I26
func (w *worker) proven(seen remediate.Seen) bool {
	if w.run.ByWord() {
		return time.Since(seen.At) <= proofMaxAge
	}
	return w.session != nil && w.session.proof.Proven(time.Now())
}

// actTime bounds one action.
func (w *worker) actTime() time.Duration {
	if w.session == nil {
		return actTimeout
	}
	return max(actTimeout, w.session.sendTime+closeTimeout)
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
