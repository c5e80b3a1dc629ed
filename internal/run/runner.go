package run

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// Cluster is what a run needs from its cluster.
type Cluster interface {
	// Clock answers whether this host's clock agrees with the API server's. wrong says by how
	// much it differs; "" if it agrees or if that is not known. // I16
	Clock() (agrees remediate.Answer, wrong string)
	// RenamedTo returns the other Node as which the host of a run has come back, "" if there
	// is none. unseen means that nobody knows, because the Nodes cannot be seen now. // I6
	RenamedTo(r remediate.Run) (node string, unseen bool)
	// Names are all names under which people may have stopped the target of a run: of its Node and of its
	// Machine, by the record, by a look and by the view. // I23
	Names(t remediate.Target, f Fresh) []string
	// Quorum returns why etcd would not survive the loss of the host, "" if it would. // I12
	Quorum(r remediate.Run, f Fresh) (reason.Code, string)
	// Justified answers whether the fresh objects still ask for the run, and why not. // I4
	Justified(r remediate.Run, f Fresh, seen remediate.Observation, now time.Time) (remediate.Answer, string)
	// Withdrawn answers whether nobody asks for the run any more, and why: its check or request is
	// gone or paused, or the mode does not allow the run. ModeForbids is the latter alone, from
	// memory; "" if the mode allows the run. // I4
	Withdrawn(r remediate.Run, f Fresh, now time.Time) (remediate.Answer, string)
	ModeForbids(r remediate.Run) string
	// Save stores a run by compare-and-set, and then publishes it to the rest of the
	// daemon. // I19
	Save(ctx context.Context, r remediate.Run) (remediate.Run, error)
	// Show publishes a record that is durable already.
	Show(r remediate.Run)
	// Record makes an event durable before the action that it announces. After an error
	// nothing destructive may be done. // I24
	Record(ev event.Event) (event.Event, error)
	// TellRequests tells those who asked for the run, or for its target, that it is processed, and waits for
	// that, but not for long. // I22
	TellRequests(ctx context.Context, r remediate.Run)
	// Wake asks for a decision.
	Wake()
}

// Stopper knows what people have stopped. // I23
type Stopper interface {
	// Why returns why nothing destructive may be done to a Node, "" if it may.
	Why(cluster string, names ...string) string
}

// Options is what a Runner is made from.
type Options struct {
	Name    string // of the cluster
	Cluster Cluster
	Kube    Kube
	Hosts   *hosts.Cluster
	Lead    *lead.Lead
	Stop    Stopper
	LockOut *power.LockOut
	Open    bmc.Opener
	Timing  power.ReadTiming
	// LastChecks returns what the BMC health check knows of a host. nil if there is none.
	LastChecks func(cluster, host string) []hosts.LastCheck
	Emit       func(event.Event)
}

// Runner carries out the open runs of one cluster, each in a goroutine of its own.
type Runner struct {
	opt     Options
	looks   *queue
	deleted *queue // of runs that have deleted the Machine

	mu       sync.Mutex
	workers  map[string]*worker   // by run ID
	offReads map[string][]OffRead // by run ID, also of runs that have ended
}

// New returns a Runner without runs.
func New(opt Options) *Runner {
	return &Runner{opt: opt, looks: &queue{size: looksAtOnce}, deleted: &queue{size: deletedAtOnce}, workers: map[string]*worker{}, offReads: map[string][]OffRead{}}
}

// Start continues an open run, as long as this instance leads the cluster. The run takes over
// the session s and the look that admitted it, each of which may be nil.
func (r *Runner) Start(record remediate.Run, s *power.Session, a *Admitted) {
	w := &worker{
		r: r, id: record.ID, run: record, inbox: &inbox{wake: make(chan struct{}, 1)}, admitted: a, names: record.Target.Names(),
		power: powerAccess{opt: &r.opt, session: s}, backups: savedBackups{lead: r.opt.Lead, run: record.ID}, hadSession: s != nil,
	}
	w.power.opening = w.opening
	r.mu.Lock()
	r.workers[w.id] = w
	r.mu.Unlock()
	if !r.opt.Lead.Spawn(w.loop) { // the claim ended meanwhile: the next owner resumes the run
		w.end(context.Background())
	}
}

// Order gives a person's order to a run, and returns once the order is durable. change applies
// the order to the record, or refuses it. ev reports it. known is false if this daemon does not
// carry the run out.
func (r *Runner) Order(ctx context.Context, run string, change func(remediate.Run) (remediate.Run, error), ev event.Event) (known bool, err error) {
	r.mu.Lock()
	w := r.workers[run]
	r.mu.Unlock()
	if w == nil {
		return false, nil
	}
	o := order{change: change, event: ev, done: make(chan error, 1)}
	if !w.inbox.put(o) {
		return true, ErrEnded(run)
	}
	select {
	case err := <-o.done:
		return true, err
	case <-ctx.Done(): // the worker takes the order all the same
		return true, ctx.Err()
	}
}

// Kick makes every run look again now: a person may have stopped something.
func (r *Runner) Kick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		w.inbox.kick()
	}
}

// OffRead is one read of Off on which a proof stands, for people.
type OffRead struct {
	At      time.Time
	Devices string // of the power level
}

// OffReads are the reads on which the proof of a run stands: one while the second is awaited, two once the host is proven off.
// It is kept in memory, so none is known after a restart, or of a run that another instance carried out.
func (r *Runner) OffReads(run string) []OffRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offReads[run]
}

// maxOffReads bounds of how many runs the reads of Off are kept.
const maxOffReads = 1000

// recordOffReads keeps on what the proof of a run stands now. Nothing is decided on it.
func (w *worker) recordOffReads(seen remediate.Observation) {
	var list []OffRead
	if seen.OffAccepted && seen.Identity == remediate.Yes && !w.run.IsolatesOnConfirmation() {
		for _, at := range seen.Proof.OffReads() {
			list = append(list, OffRead{At: at.UTC(), Devices: seen.Devices})
		}
	}
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(list) == 0 {
		delete(r.offReads, w.id)
		return
	}
	if r.offReads[w.id] = list; len(r.offReads) > maxOffReads { // the IDs of runs are in the order of their starts
		delete(r.offReads, slices.Min(slices.Collect(maps.Keys(r.offReads))))
	}
}

func (r *Runner) emit(e event.Event) {
	e.Cluster = r.opt.Name
	r.opt.Emit(e)
}

// ErrEnded refuses an order to a run that this daemon no longer carries out.
func ErrEnded(run string) error {
	return &reason.Refusal{Reason: reason.NoRun, Message: "run " + run + " has just ended, or is taken up elsewhere"}
}

// Fresh is the result of one uncached look at the cluster.
type Fresh struct {
	Observation remediate.Observation // the fields that come from the cluster
	Node        *policy.Node
	Machine     *policy.Machine
	// Cluster is the Cluster API's Cluster of the Machine, if it has one.
	Cluster *policy.Cluster
	// Members are the etcd members. They are read for control-plane runs. If MembersKnown is
	// false, nothing is known about them. // I12
	Members      []policy.Member
	MembersKnown bool
	// Request is the remediation request of the run; nil if it is gone, or if there is none. It
	// counts only if RequestRead.
	Request     *policy.Request
	RequestRead bool
	// NoNodeLocks: the cluster has no Leases on Nodes, so there was nothing for LockNode to take.
	NoNodeLocks bool
	// Lease is the kubelet's.
	Lease policy.Lease
	// PodsLeft are some of the pods for which step 3 waits, for people: "namespace/name".
	PodsLeft []string
	// Err says what could not be read; nil if all was read.
	Err error
}

// Kube does the uncached reads and the few writes of one cluster. Every write carries the UID of
// the object that was decided on.
type Kube interface {
	// Look reads the objects of a run without any cache. backups are the Nodes saved for the
	// run; nil means that they could not be read. What could not be read stays unknown in the
	// result, and Fresh.Err says why. There is no other error.
	Look(ctx context.Context, r remediate.Run, backups [][]byte) Fresh
	// Backup returns the target's Node as JSON, with its UID and resourceVersion. It writes
	// nothing. An error means that the Node could not be read, or is not the target's. // I21
	Backup(ctx context.Context, t remediate.Target) ([]byte, remediate.Backup, error)
	// Restore gives the Node that has registered for a run what the backups have and it lacks, except
	// the keys that are in r.Restored for it. It returns the saved keys that an answer of the API server
	// showed on the Node, also beside an error. remediate.ErrChanged: the Node changed meanwhile. // I21
	Restore(ctx context.Context, r remediate.Run, backups [][]byte) (readBack []string, err error)
	// Act does one other write of a run, which is not SendOff, SendOn or BackupNode. It is
	// idempotent: what is done already is no error. If a write finds another UID or, for the
	// isolation, another resourceVersion than b's, it changes nothing and returns an error.
	// After an error the write may have been done: only the next Look shows it. // I2
	Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error
	// LockNode takes or renews the Lease with which other remediators keep away from the run's
	// Node. binds is for how long they do, from the start of the call; 0 if there is no such Lease
	// in this cluster. If somebody else holds it, LockNode writes nothing, and foreign says who
	// does. // I22
	LockNode(ctx context.Context, r remediate.Run) (binds time.Duration, foreign string, err error)
	// UnlockNode gives back what LockNode took for this run.
	UnlockNode(ctx context.Context, r remediate.Run) error
}

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
	held     *remediate.Run // a step into Held that the store did not save; nil if there is none
	lock     nodeLock

	restored   restored // what became of the last attempt to restore the Node
	hadSession bool     // this process has opened a session with the host's BMC
	pods       podsWait
	forbade    struct { // what forbade the last destructive action; "" if nothing did
		why  string
		told bool
	}
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
		if w.run.Step == remediate.PowerOff {
			w.recordOffReads(d.seen)
		}
		next, action, wait := remediate.Next(w.run, d.seen, time.Now())
		d.action = action
		if action == remediate.SendOn || action == remediate.ReleasePowerLock {
			w.endPodsWait(", still there", time.Now())
		}
		if w.held != nil && w.held.Version == w.run.Version { // it takes the place of the answer to a later look, once
			next, d.action = *w.held, remediate.Nothing
		}
		w.held = nil
		if !w.commit(ctx, next) {
			w.keepHeld(next)
			if w.ownershipLost {
				return
			}
			wait = SaveRetry // without a durable record there is no action // I19
		} else if d.action != remediate.Nothing {
			w.act(ctx, d)
			// remediate.Next wants to see at once what became of an action. What became of a deletion
			// matters only to the end of the run: when many Machines fail at the same moment, such looks
			// would take the API server's time from those that are still to be deleted.
			if d.action == remediate.DeleteTargetMachine {
				wait = max(wait, deletionSeen)
			}
		}
		if !w.sleep(ctx, wait) {
			return
		}
	}
}

func (w *worker) end(ctx context.Context) {
	if !w.ownershipLost {
		w.saveContradiction(ctx)
	}
	w.power.drop(ctx, w.run)
	defer w.unlockNode(ctx) // last: nobody waits for it
	w.r.mu.Lock()
	delete(w.r.workers, w.id)
	w.r.mu.Unlock()
	w.inbox.mu.Lock()
	w.inbox.closed = true // all later orders are refused as well
	w.inbox.mu.Unlock()
	for _, o := range w.inbox.take() {
		o.done <- ErrEnded(w.id)
	}
	w.r.opt.Cluster.Wake()
}

// commit saves the record if it changed, and emits a new step. After a conflict another owner
// has written the record, so commit reads it again.
func (w *worker) commit(ctx context.Context, next remediate.Run) bool {
	if reflect.DeepEqual(next, w.run) {
		w.clock.saved = true
		return true
	}
	saved, err := w.save(context.WithoutCancel(ctx), next)
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

// save saves the record. What the end of a run does to an enrolment comes before that: nobody looks at a saved end again. // I8
func (w *worker) save(ctx context.Context, next remediate.Run) (remediate.Run, error) {
	if next.Step.Ended() {
		if err := w.r.opt.Hosts.Distrust(ctx, next); err != nil {
			return next, err
		}
	}
	return w.r.opt.Cluster.Save(ctx, next)
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
	w.emit(event.Event{Type: event.Stepped, Reason: saved.Reason, Message: lastNote(saved), Began: saved.Began(), Left: saved.Left()})
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

// takeOrders applies the orders of people to the record, where the record allows them. Nobody carries out one that comes while the end of the
// run is saved.
func (w *worker) takeOrders(ctx context.Context) {
	for _, o := range w.inbox.take() {
		if w.run.Step.Ended() {
			o.done <- ErrEnded(w.id)
			continue
		}
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

// saveContradiction saves at once that a power level has read On although a person confirms that the host is off: the look that would show it
// may take long or never begin, and the next process may not read it. // I26
func (w *worker) saveContradiction(ctx context.Context) {
	on := w.power.heardOn(w.run)
	if on == "" {
		return
	}
	clock, _ := w.r.opt.Cluster.Clock()
	next, _, _ := remediate.Next(w.run, remediate.Observation{Level: w.run.Level, LowerLevelOn: on, Clock: clock}, time.Now())
	if next.Step == remediate.Held && !w.commit(ctx, next) {
		w.keepHeld(next)
	}
}

// keepHeld keeps next, which could not be saved, if it is a step into Held, or to another reason there:
// the reason, like one On reading that contradicts a confirmation, may not be observed again. // I5, I26
func (w *worker) keepHeld(next remediate.Run) {
	if next.Step == remediate.Held && (w.run.Step != remediate.Held || w.run.Reason != next.Reason) {
		w.held = &next
	}
}
