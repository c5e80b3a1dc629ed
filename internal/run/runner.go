package run

import (
	"context"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Cluster is what a run asks of its cluster, and tells it.
type Cluster interface {
	// Clock says whether this host's clock agrees with the API server's, and if it does
	// not, by how much it is wrong. // I16
	Clock() (agrees remediate.Answer, wrong string)
	// RenamedTo names another Node as which the host of a run has come back. unseen: the
	// Nodes cannot be seen now, so nobody can say. // I6
	RenamedTo(r remediate.Run) (node string, unseen bool)
	// Quorum says why etcd would not survive the loss of the host; "" when it would. // I12
	Quorum(r remediate.Run, f Fresh) (reason.Code, string)
	// Justified says whether the fresh objects still ask for the run. // I4
	Justified(r remediate.Run, f Fresh, seen remediate.Observation, now time.Time) (remediate.Answer, string)
	// Save stores a run by compare-and-set and then makes it what others see. // I19
	Save(ctx context.Context, r remediate.Run) (remediate.Run, error)
	// Show makes a record that is durable already what others see.
	Show(r remediate.Run)
	// Record makes an event durable before what it announces is done. On an error nothing
	// destructive may be done. // I24
	Record(ev event.Event) (event.Event, error)
	// Wake asks for a decision.
	Wake()
}

// Stopper says why nothing destructive may be done to a Node, "" when it may. // I23
type Stopper interface {
	Why(cluster, node string) string
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
	opt   Options
	looks *queue

	mu      sync.Mutex
	workers map[string]*worker // by run ID
}

// New makes a Runner without any run.
func New(opt Options) *Runner {
	return &Runner{opt: opt, looks: &queue{size: looksAtOnce}, workers: map[string]*worker{}}
}

// Start goes on with an open run, as long as this instance leads the cluster. s may be nil;
// it is the run's from then on.
func (r *Runner) Start(record remediate.Run, s *power.Session) {
	w := &worker{r: r, id: record.ID, run: record, session: s, inbox: newInbox()}
	r.mu.Lock()
	r.workers[w.id] = w
	r.mu.Unlock()
	if !r.opt.Lead.Spawn(w.loop) { // the claim ended meanwhile: the next owner resumes the run
		w.end(context.Background())
	}
}

// Order gives a run a person's order, and returns once that is durable. change makes it
// part of the record, or refuses; ev tells of it. known is false when nobody carries the
// run out here.
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
	case <-ctx.Done(): // the worker will take it all the same
		return true, ctx.Err()
	}
}

// Kick makes every run look again now: people may have stopped something.
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

// ErrEnded is the refusal of an order to a run that nobody carries out here any more.
func ErrEnded(run string) error {
	return &reason.Refusal{Reason: reason.NoRun, Message: "run " + run + " has just ended, or is taken up elsewhere"}
}
