package sweep

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
)

// Engine is what the sweep asks of the daemon's engine, and tells it.
type Engine interface {
	// Inventory gives every host of every cluster, with its credentials.
	Inventory(ctx context.Context) []hosts.Subject
	// SubjectOf gives the host of one Node. An empty cluster means the only one.
	SubjectOf(ctx context.Context, cluster, node string) (hosts.Subject, error)
	// Identify says whether the machine that answered is the Node's.
	Identify(ctx context.Context, s hosts.Subject, level, device int, r bmc.Reading) guard.IdentityVerdict
	// Quarantine is why the host would not be switched, whatever its BMC says.
	Forbidden(ctx context.Context, s hosts.Subject) []reason.Refusal
	// Checked is told of every look.
	Checked(ctx context.Context, c hosts.Checked)
}

// Options is everything the sweep is made from.
type Options struct {
	Engine Engine
	Open   bmc.Opener // makes way for runs
	Urgent bmc.Opener // for looks that a person waits for
	// Every is the time between two looks at one device; 0 means that only people
	// order looks.
	Every       time.Duration
	ReadTimeout time.Duration // of a reading, where power.Timing gives no more
	AtOnce      int           // looks in flight, at most
	// Tell is given an event when a device stops or begins to be dependable, and
	// Measured the latency of each good look. Neither may block.
	Tell     func(event.Event)
	Measured func(bmc.Driver, time.Duration)
}

// AtOnce is how many looks are in flight unless configured otherwise.
const AtOnce = 64

const (
	idleRefresh  = time.Minute     // of the inventory, when nothing is swept
	emptyRefresh = 5 * time.Second // while the view of some cluster is still coming
	yieldPause   = 10 * time.Second
)

// Sweep looks at the BMCs of the inventory. Make it with New; run it once.
type Sweep struct {
	opt  Options
	wake chan struct{} // something may be asked now

	mu       sync.Mutex
	hosts    map[hostID][]*entry
	adopted  bool            // the inventory was seen
	unusable []hosts.Subject // hosts without any device that could be asked
	plan     *schedule
	accounts map[account]refusal
}

// hostID names a host of the inventory.
type hostID struct{ cluster, name, node string }

// New prepares a sweep. It asks nothing yet.
func New(opt Options) *Sweep {
	return &Sweep{opt: opt, wake: make(chan struct{}, 1), hosts: map[hostID][]*entry{},
		plan: newSchedule(opt.AtOnce), accounts: map[account]refusal{}}
}

// Run sweeps until ctx ends and the last look is over.
func (s *Sweep) Run(ctx context.Context) error {
	var looks sync.WaitGroup
	defer looks.Wait()
	looks.Go(func() { s.follow(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
		if due := s.begin(ctx, &looks); !due.IsZero() {
			timer.Reset(max(time.Millisecond, time.Until(due)))
		}
	}
}

// follow keeps to the inventory as it changes.
func (s *Sweep) follow(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		all := s.opt.Engine.Inventory(ctx)
		if ctx.Err() != nil {
			return // what was read may be a part only
		}
		s.adopt(all, time.Now())
		s.poke()
		switch {
		case len(all) == 0 || slices.ContainsFunc(all, unseen):
			timer.Reset(emptyRefresh)
		case s.opt.Every == 0:
			timer.Reset(idleRefresh)
		default:
			timer.Reset(s.opt.Every)
		}
	}
}

// begin starts every look that may start, and says when the next is due.
func (s *Sweep) begin(ctx context.Context, looks *sync.WaitGroup) time.Time {
	s.mu.Lock()
	now := time.Now()
	var news []event.Event
	for e := s.plan.next(now); e != nil; e = s.plan.next(now) {
		if a, until, spared := s.spared(e, now); spared {
			if ev := e.record(a); ev != nil {
				news = append(news, *ev)
			}
			s.plan.end(e, now, until.Add(s.jitter()))
			continue
		}
		subject, what := e.subject, e.wants(now)
		looks.Go(func() { s.look(ctx, e, subject, what) })
	}
	due := s.plan.wake()
	s.mu.Unlock()
	for _, ev := range news {
		s.opt.Tell(ev)
	}
	return due
}

// look asks one device for the sweep.
func (s *Sweep) look(ctx context.Context, e *entry, subject hosts.Subject, what wish) {
	a := s.ask(ctx, s.opt.Open, subject, e.id, what)
	now := time.Now()
	s.mu.Lock()
	if a.abandoned {
		s.plan.end(e, now, now.Add(min(yieldPause, s.opt.Every)))
		s.mu.Unlock()
		s.poke()
		return
	}
	news := s.took(e, a)
	s.plan.end(e, now, s.due(e, now))
	s.mu.Unlock()
	s.poke()
	s.tell(ctx, a, news)
}

// took notes what a look found. The caller holds mu.
func (s *Sweep) took(e *entry, a answer) *event.Event {
	s.noteAccount(e, a)
	return e.record(a)
}

// tell passes on what a look found.
func (s *Sweep) tell(ctx context.Context, a answer, news *event.Event) {
	if a.Err == nil {
		s.opt.Measured(a.device().Driver, a.Latency)
	}
	s.opt.Engine.Checked(ctx, a.Checked)
	if news != nil {
		s.opt.Tell(*news)
	}
}

// due is when the device is asked again. The caller holds mu.
func (s *Sweep) due(e *entry, now time.Time) time.Time {
	if _, until, barred := s.barred(e, now); barred {
		return until.Add(s.jitter())
	}
	return now.Add(e.pause(s.opt.Every) + s.jitter())
}

// jitter keeps devices from being asked all at the same moment.
func (s *Sweep) jitter() time.Duration { return rand.N(max(1, s.opt.Every/5)) }

// poke makes the loop look whether something may be asked.
func (s *Sweep) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
