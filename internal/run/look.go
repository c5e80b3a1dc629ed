package run

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// admittedFor is how long after it began the look that admitted a run is also the first look of
// the run. It is about as long as a look may take by itself. What is done on it must still be
// younger than actFresh, as with any look. // I4
const admittedFor = 250 * time.Millisecond

// Admitted is the look at the cluster with which a run was admitted.
type Admitted struct {
	Fresh Fresh
	At    time.Time // when it began
}

// look reads everything that remediate.Next may need. It reads the BMC before the cluster, so
// that the Lease is younger than the power reading. What cannot be read stays unknown.
func (w *worker) look(ctx context.Context) (remediate.Observation, [][]byte, remediate.Backup) {
	power, nodes, last := w.lookAtPowerAndStore(ctx)
	var seen remediate.Observation
	if a := w.takeAdmitted(); a != nil {
		seen = w.observe(a.Fresh, a.At, power, last)
	} else {
		queue, due := w.lookQueue(), time.Now()
		proving := (w.run.Step == remediate.PowerOff || w.run.Step == remediate.DeleteNode) && power.OffAccepted && power.Power.State == bmc.Off
		if !proving { // a proof of off does not stay fresh for long, so a run that has begun one goes before others
			due = due.Add(overtakeLimit)
		}
		if !queue.enter(ctx, due) { // the BMC is read outside of the queue, because it may hang // L3
			return remediate.Observation{At: time.Now()}, nil, remediate.Backup{}
		}
		seen = w.lookAtCluster(ctx, power, nodes, last)
		queue.leave()
	}
	w.lockNode(ctx, &seen)
	return seen, nodes, last
}

// lookQueue is where the run waits for its turn to look at the cluster.
func (w *worker) lookQueue() *queue {
	if w.run.Step == remediate.Reprovision && w.run.Intent.Action == remediate.DeleteTargetMachine {
		return w.r.deleted
	}
	return w.r.looks
}

// takeAdmitted returns the look that admitted the run, once, if the run may begin with it. A host
// that is switched off, a member of the control plane and what a person orders are looked at
// again: they depend on more than the Machine. // I4, I12
func (w *worker) takeAdmitted() *Admitted {
	a := w.admitted
	w.admitted = nil
	r := &w.run
	if a == nil || r.Strategy != remediate.DeleteMachine || r.ControlPlane || r.Manual != nil || a.Fresh.Err != nil || time.Since(a.At) > admittedFor {
		return nil
	}
	return a
}

// lookAtPowerAndStore reads what does not come from the cluster. Power and store each have a
// time of their own: silent devices may use up all of theirs.
func (w *worker) lookAtPowerAndStore(ctx context.Context) (power remediate.Observation, nodes [][]byte, last remediate.Backup) {
	reading, cancel := context.WithTimeout(ctx, LookTimeout)
	power, err := w.power.look(reading, w.run)
	cancel()
	if err = cmp.Or(err, w.power.readError); ctx.Err() == nil { // otherwise the read was interrupted
		var code reason.Code
		if err != nil {
			code = hosts.ReasonOf(err)
		}
		w.powerFailure.report(w, code, err)
	}
	loading, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	if nodes, last, err = w.backups.read(loading); err != nil {
		w.emit(event.Event{Type: event.Failed, Message: "read the backups of the Node: " + err.Error()})
	}
	return power, nodes, last
}

// lookAtCluster reads the cluster, and adds it to what is known about power and store. nodes are
// the saved Nodes, nil if they could not be read.
func (w *worker) lookAtCluster(ctx context.Context, power remediate.Observation, nodes [][]byte, last remediate.Backup) remediate.Observation {
	ctx, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	at := time.Now()
	return w.observe(w.r.opt.Kube.Look(ctx, w.run, nodes), at, power, last)
}

// observe adds what is known now to a look at the cluster that began at a time.
func (w *worker) observe(fresh Fresh, at time.Time, power remediate.Observation, last remediate.Backup) remediate.Observation {
	seen := fresh.Observation
	seen.At = at
	if fresh.NoNodeLocks {
		// LockNode, which asks the API server the same, would have answered that there is nothing to
		// take. So the answer is as good for as long. // I22
		w.lock.note(lockResult{began: at})
	}
	w.clusterFailure.report(w, lookReasons[seen.API], fresh.Err)
	w.notePods(fresh, at)
	// Another installation of fenced is a remediator, too. // I22
	if answer, who := w.r.opt.Lead.Contested(time.Now()); answer == remediate.Yes || answer == remediate.CannotTell && seen.Contested == remediate.No {
		seen.Contested, seen.Contender = answer, who
	}
	seen.Level, seen.Devices, seen.ProofKind = power.Level, power.Devices, power.ProofKind
	seen.Power, seen.PowerError, seen.LevelRefusal = power.Power, power.PowerError, power.LevelRefusal
	seen.Identity, seen.LowerLevelOn = power.Identity, power.LowerLevelOn
	seen.Proof, seen.OffAccepted = power.Proof, power.OffAccepted
	_, frozen := w.r.opt.Hosts.Frozen(w.run.Target)
	seen.PowerForbidden = cmp.Or(frozen, w.r.opt.Hosts.DuplicateOf(w.run, w.power.host()), seen.PowerForbidden) // I5, I9
	seen.MachineMetal = w.r.opt.Hosts.BareMetalHostOf(fresh.Machine)
	seen.Backup, seen.RestoreError = last, w.restored.refusal
	if seen.Node.UID == w.restored.nodeUID {
		seen.ReadBack = slices.Concat(seen.ReadBack, w.restored.keys)
	}
	names := w.r.opt.Cluster.Names(w.run.Target, fresh)
	if fresh.Err != nil { // it may lack one that the look before had
		names = append(names, w.names...)
		slices.Sort(names)
	}
	w.names = slices.Compact(names)
	seen.PausedReason, seen.PausedWhy = w.stopReason()
	seen.Paused = seen.PausedWhy != ""
	agrees, _ := w.r.opt.Cluster.Clock()
	seen.Clock, seen.ClockSet = agrees, w.clock.unsaved(time.Now())
	seen.Justified, seen.Why = w.r.opt.Cluster.Justified(w.run, fresh, seen, at)
	seen.Withdrawn, seen.WithdrawnWhy = w.r.opt.Cluster.Withdrawn(w.run, fresh, at)
	seen.GivenUp = fresh.RequestRead && fresh.Request != nil && !fresh.Request.TimedOut.IsZero()
	seen.RenamedTo, seen.NodesUnseen = w.r.opt.Cluster.RenamedTo(w.run)
	if w.run.ControlPlane {
		seen.Quorum, seen.QuorumWhy = w.quorum(fresh)
	}
	return seen
}

// quorum answers from a fresh look whether etcd survives the loss of the host. If the members
// could not be read, there is no answer. // I12
func (w *worker) quorum(f Fresh) (remediate.Answer, string) {
	code, why := w.r.opt.Cluster.Quorum(w.run, f)
	switch code {
	case "":
		return remediate.Yes, ""
	case reason.QuorumUnknown:
		return remediate.CannotTell, ""
	}
	return remediate.No, why
}

// failureEvery is the time between two reports of failed reads of one run: a BMC may answer every
// other read.
const failureEvery = time.Minute

// readFailure remembers how reads of one kind fail, so that it is reported once per change.
type readFailure struct {
	told event.Told[failedRead]
	at   time.Time // of the last report
}

// failedRead is the zero value for a read that succeeded.
type failedRead struct {
	failed bool
	code   reason.Code
}

// report emits that a read of a run failed, if that is new. A nil err means that it succeeded.
func (f *readFailure) report(w *worker, code reason.Code, err error) {
	now := time.Now()
	switch {
	case err == nil:
		f.told.News(failedRead{})
	case !f.at.IsZero() && now.Sub(f.at) < failureEvery:
	case f.told.News(failedRead{true, code}):
		f.at = now
		w.emit(event.Event{Type: event.Failed, Reason: code, Message: reason.Sentence(err)})
	}
}

// lookReasons are the reason codes of looks at the cluster that failed.
var lookReasons = map[remediate.APIState]reason.Code{
	remediate.APIForbidden:   reason.APIForbidden,
	remediate.APIUnreachable: reason.APIUnreachable,
}

// clockStep is by how much a clock may be set without counting as another clock.
const clockStep = 2 * time.Second

// wallClock is the clock by which one run is looked at.
type wallClock struct {
	last  time.Time // the time of the last look
	saved bool      // the record was saved since the process started, and since the clock was set
}

// unsaved reports whether no record was saved yet by this clock as it is now.
func (c *wallClock) unsaved(now time.Time) bool {
	if by := now.Round(0).Sub(c.last.Round(0)) - now.Sub(c.last); by.Abs() > clockStep && !c.last.IsZero() {
		c.saved = false
	}
	c.last = now
	return !c.saved
}

const (
	// looksAtOnce is how many runs may look at one API at the same time. It is more than the
	// default of guards.maxInFlightTotal. If too many looked at the same time, they would share
	// the client's rate limit. Then each look would take so long that no proof of off is fresh
	// when it ends, and no run would make progress.
	looksAtOnce = 32
	// deletedAtOnce is how many runs may look at the same time whether the Machine is gone that
	// they have deleted. Nothing depends on it but their end, so the Machines that are still to
	// be deleted go before.
	deletedAtOnce = 2
	// overtakeLimit is for how long later, more urgent looks may overtake a look.
	overtakeLimit = 5 * time.Second
)

// queue admits a limited number at a time, in the order of their due times. However many urgent
// ones arrive, each waiter is admitted in the end.
type queue struct {
	size int

	mu      sync.Mutex
	inside  int
	waiting []*waiter // in the order of their due times
}

type waiter struct {
	due  time.Time
	turn chan struct{} // closed when the waiter is admitted
}

// enter waits until the caller is admitted. It returns false if ctx ended before. After true,
// the caller must call leave.
func (q *queue) enter(ctx context.Context, due time.Time) bool {
	q.mu.Lock()
	if q.inside < q.size {
		q.inside++
		q.mu.Unlock()
		return true
	}
	w := &waiter{due: due, turn: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(q.waiting, due, func(w *waiter, due time.Time) int {
		if w.due.After(due) {
			return 1
		}
		return -1 // after those that are due at the same time
	})
	q.waiting = slices.Insert(q.waiting, at, w)
	q.mu.Unlock()
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 { // it was admitted meanwhile
		q.leave()
	}
	return false
}

// leave admits the first waiter, if there is one.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.inside--
		return
	}
	close(q.waiting[0].turn)
	q.waiting = q.waiting[1:]
}

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
	select {
	case r := <-l.renewing: // never, if there is none
		l.finish(r)
	default:
	}
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
		w.emit(event.Event{Type: event.Failed, Message: "release medik8s' Lease on the Node: " + err.Error()})
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

// podsWait is for which pods the run waits before it switches its host on, since when.
type podsWait struct {
	since time.Time
	names []string
}

// notePods notes what a look says about the pods of an isolated Node, and reports the wait for them when it is over. // I7
func (w *worker) notePods(f Fresh, now time.Time) {
	switch {
	case w.run.Step != remediate.PowerOn || w.run.Abandon != "":
		w.pods = podsWait{}
	case f.Observation.PodsGone == remediate.Yes:
		w.endPodsWait("", now)
	case f.Observation.PodsGone == remediate.No && len(f.PodsLeft) > 0:
		if w.pods.since.IsZero() {
			w.pods.since = now
		}
		w.pods.names = f.PodsLeft
	}
}

// endPodsWait reports for how long the run has waited for pods, if it has; and says how that ended.
func (w *worker) endPodsWait(how string, now time.Time) {
	if since := w.pods.since; !since.IsZero() {
		w.emit(event.Event{Type: event.Waited, Message: "waited " + now.Sub(since).Round(time.Second).String() + " for pod " + strings.Join(w.pods.names, ", ") + how})
	}
	w.pods = podsWait{}
}
