package run

import (
	"context"
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
	Emit    func(event.Event)
}

// Runner carries out the open runs of one cluster, each in a goroutine of its own.
type Runner struct {
	opt     Options
	looks   *queue
	deleted *queue // of runs that have deleted the Machine

	mu      sync.Mutex
	workers map[string]*worker // by run ID
}

// New returns a Runner without runs.
func New(opt Options) *Runner {
	return &Runner{opt: opt, looks: &queue{size: looksAtOnce}, deleted: &queue{size: deletedAtOnce}, workers: map[string]*worker{}}
}

// Start continues an open run, as long as this instance leads the cluster. The run takes over
// the session s and the look that admitted it, each of which may be nil.
func (r *Runner) Start(record remediate.Run, s *power.Session, a *Admitted) {
	w := &worker{
		r: r, id: record.ID, run: record, inbox: newInbox(), admitted: a, names: record.Target.Names(),
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
	// showed on the Node, also beside an error. // I21
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
