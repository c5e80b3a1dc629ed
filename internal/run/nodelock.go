package run

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

// Times of the Lease on a Node.
const (
	lockTimeout = 5 * time.Second // of one request
	lockEvery   = time.Minute     // between two renewals, and two questions whether there is such a Lease
	lockRetry   = 10 * time.Second
	// lockMargin is how long the Lease must still bind others when an action is decided on. It is
	// longer than any destructive action.
	lockMargin = time.Minute
)

// nodeLock is the Lease with which other remediators keep away from the Node of an open run, in a
// cluster that has such Leases (medik8s). It is the second interlock beside what a look reads: a
// remediator that begins between two looks must take it first. Without it nothing destructive is
// done. At the other steps it is only renewed beside them, and they never wait for it: nothing may
// keep a host off. // I22
type nodeLock struct {
	taken     bool               // this process has taken or renewed it: it is to be given back
	until     time.Time          // others respect it until then, or need no Lease; by the monotonic clock
	next      time.Time          // of the next renewal
	refused   event.Told[string] // why it could not be taken
	renewing  chan lockResult
	stopRenew context.CancelFunc
}

// lockResult is the result of a request that began at a time.
type lockResult struct {
	began   time.Time
	renewed bool // nothing was to be taken that was not held already
	binds   time.Duration
	foreign string
	err     error
}

// lockNode makes sure that the Lease on the Node is held before anything destructive is done, and
// renews it. If it cannot be taken, seen says that somebody else is, or may be, at work.
func (w *worker) lockNode(ctx context.Context, seen *remediate.Observation) {
	l := &w.lock
	l.collect()
	now := time.Now()
	switch {
	case w.run.Target.Node == "":
	case w.run.Step.Ended():
	case w.run.Step.Destructive() && !now.Before(l.until.Add(-lockMargin)):
		if seen.API == remediate.APIReachable && seen.Contested == remediate.No { // else nothing is begun anyway
			w.takeLock(ctx, seen)
		}
	case !now.Before(l.next):
		l.renew(ctx, w.r.opt.Kube, w.run)
	}
}

// takeLock takes the Lease, and waits for the answer.
func (w *worker) takeLock(ctx context.Context, seen *remediate.Observation) {
	l := &w.lock
	l.stop() // it must not answer later than this request
	r := lock(ctx, w.r.opt.Kube, w.run)
	l.note(r)
	switch {
	case r.foreign != "":
		seen.Contested, seen.Contender = remediate.Yes, r.foreign
	case r.err != nil:
		seen.Contested, seen.Contender = remediate.CannotTell, r.err.Error()
		if why := r.err.Error(); ctx.Err() == nil && l.refused.News(why) {
			w.emit(event.Event{Type: event.Failed, Message: "keep other remediators away: " + why})
		}
	default:
		l.refused.News("")
	}
}

// unlockNode gives the Lease back when the run has ended. A run that goes on in another process
// keeps it.
func (w *worker) unlockNode(ctx context.Context) {
	w.lock.stop()
	if !w.run.Step.Ended() || !w.lock.taken {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
	defer cancel()
	if err := w.r.opt.Kube.UnlockNode(ctx, w.run); err != nil { // it expires by itself
		w.emit(event.Event{Type: event.Failed, Message: "let other remediators have the Node again: " + err.Error()})
	}
}

func lock(ctx context.Context, k Kube, r remediate.Run) lockResult {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	result := lockResult{began: time.Now(), renewed: !r.Step.Destructive()}
	result.binds, result.foreign, result.err = k.LockNode(ctx, r)
	return result
}

// renew renews the Lease beside the run, one request at a time.
func (l *nodeLock) renew(ctx context.Context, k Kube, r remediate.Run) {
	if l.renewing != nil {
		return
	}
	ctx, l.stopRenew = context.WithCancel(ctx)
	done := make(chan lockResult, 1)
	l.renewing = done
	go func() { done <- lock(ctx, k, r) }()
}

// collect notes the result of a renewal that has finished.
func (l *nodeLock) collect() {
	select {
	case r := <-l.renewing: // never, if there is none
		l.finish(r)
	default:
	}
}

// stop ends a renewal that is in progress, and waits for it.
func (l *nodeLock) stop() {
	if l.renewing != nil {
		l.stopRenew()
		l.finish(<-l.renewing)
	}
}

func (l *nodeLock) finish(r lockResult) {
	l.stopRenew()
	l.renewing = nil
	l.note(r)
}

// noteNone records that a look which began at a time found no such Leases in the cluster: LockNode,
// which asks the API server the same, would have answered that there is nothing to take. So the
// answer is as good for as long. // I22
func (l *nodeLock) noteNone(at time.Time) { l.note(lockResult{began: at}) }

// note records the result of a request.
func (l *nodeLock) note(r lockResult) {
	switch {
	case r.err != nil: // what is known stays true until its end
		l.taken = true // it may have been written
		l.next = r.began.Add(lockRetry)
	case r.foreign != "":
		l.until, l.next = time.Time{}, r.began.Add(lockRetry)
	case r.binds == 0 && r.renewed: // it is not held, which says nothing about whether it must be
		l.next = r.began.Add(lockEvery)
	case r.binds == 0: // there is nothing to hold
		l.until, l.next = r.began.Add(lockEvery+lockMargin), r.began.Add(lockEvery)
	default:
		l.taken = true
		l.until, l.next = r.began.Add(r.binds), r.began.Add(min(lockEvery, r.binds/2))
	}
}
