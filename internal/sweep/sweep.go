package sweep

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
)

// Engine is the part of the engine that the sweep uses.
type Engine interface {
	// Inventory returns every host of every cluster, one after the other, with its credentials.
	Inventory(ctx context.Context) iter.Seq[hosts.Subject]
	// SubjectOf returns the host of one Node. An empty cluster means the only one.
	SubjectOf(ctx context.Context, cluster, node string) (hosts.Subject, error)
	// Identify compares the identity in a reading with the Node.
	Identify(ctx context.Context, s hosts.Subject, level, device int, r bmc.Reading) guard.IdentityVerdict
	// Forbidden returns why the engine would refuse to switch the host, whatever
	// its BMC reports.
	Forbidden(ctx context.Context, s hosts.Subject) []reason.Refusal
	// Checked reports the result of every poll.
	Checked(ctx context.Context, c hosts.Checked)
}

// Options configure a Sweep.
type Options struct {
	Engine Engine
	Open   bmc.Opener // gives way to runs
	Urgent bmc.Opener // for polls that a person waits for
	// LockOut knows which accounts were refused, also to runs: a fence may need the same account.
	LockOut *power.LockOut
	// Every is the time between two polls of one device; 0 means that only people
	// order polls.
	Every       time.Duration
	ReadTimeout time.Duration // timeout of a reading, unless power.Timing allows more
	Concurrency int           // maximum number of polls in flight
	// OnEvent is called when a device stops being dependable or becomes so again,
	// OnLatency with the latency of each successful poll. Neither may block.
	OnEvent   func(event.Event)
	OnLatency func(bmc.Driver, time.Duration)
}

// DefaultConcurrency is how many polls are in flight unless configured otherwise.
const DefaultConcurrency = 64

const (
	idleRefresh  = time.Minute     // of the inventory, if Every is 0
	emptyRefresh = 5 * time.Second // while a cluster has not been read completely
	yieldPause   = 10 * time.Second
)

// Sweep polls the BMCs of the inventory. Create it with New and run it once.
type Sweep struct {
	opt  Options
	wake chan struct{} // signals that a device may be ready for a poll
	read chan struct{} // signals that the inventory may have changed

	mu            sync.Mutex
	hosts         map[hostID]*host
	listed        []*host         // those of the last reading of the inventory, in its order: whoever goes through all finds neighbours in memory
	access        []bmc.Access    // of the host that was taken last
	inventoryRead bool            // the inventory has been read
	unusable      []hosts.Subject // hosts without a device that could be polled
	plan          *schedule
	ended         []event.Event // of devices that are gone; not published yet
}

// hostID identifies a host of the inventory. Its name begins with its cluster.
type hostID struct{ name, node string }

// host is one host of the inventory, with its devices. round is the last reading of the inventory that found it, or 0. Sweep.mu guards it.
type host struct {
	*subject
	list  []*entry
	round int
}

// New creates a Sweep. It polls nothing yet.
func New(opt Options) *Sweep {
	return &Sweep{opt: opt, wake: make(chan struct{}, 1), read: make(chan struct{}, 1), hosts: map[hostID]*host{},
		plan: newSchedule(opt.Concurrency)}
}

// IsOff reports whether devices are asked only when people ask.
func (s *Sweep) IsOff() bool { return s.opt.Every == 0 }

// Run polls until ctx ends and the last poll is over.
func (s *Sweep) Run(ctx context.Context) error {
	var polls sync.WaitGroup
	defer polls.Wait()
	polls.Go(func() { s.followInventory(ctx) })
	live.Repeat(ctx, s.wake, func() time.Time { return s.startPolls(ctx, &polls) })
	return nil
}

// ReadInventory makes Run read the inventory soon, because it may have changed.
func (s *Sweep) ReadInventory() { live.Signal(s.read) }

// PollSoon polls the devices of one host as soon as their BMCs may be asked again: an order or a run has changed what
// is known of them. of is the name of its Node, or the "namespace/name" of its Machine; an empty cluster is any.
func (s *Sweep) PollSoon(cluster, of string) {
	s.mu.Lock()
	for _, h := range s.hosts {
		if (cluster == "" || h.cluster == cluster) && of != "" && (h.node == of || h.machine == of) {
			for _, e := range h.list {
				s.plan.hasten(e, time.Now())
			}
		}
	}
	s.mu.Unlock()
	s.wakeLoop()
}

// followInventory reads the inventory again and again.
func (s *Sweep) followInventory(ctx context.Context) {
	round := 0
	live.Repeat(ctx, s.read, func() time.Time {
		round++
		again := cmp.Or(s.opt.Every, idleRefresh)
		if !s.updateInventory(ctx, round) {
			again = emptyRefresh
		}
		s.mu.Lock()
		news := s.ended
		s.ended = nil
		s.mu.Unlock()
		for _, ev := range news {
			s.opt.OnEvent(ev)
		}
		if ctx.Err() == nil {
			s.wakeLoop()
		}
		return time.Now().Add(again)
	})
}

// startPolls starts every poll that may start, and returns when the next is due.
func (s *Sweep) startPolls(ctx context.Context, polls *sync.WaitGroup) time.Time {
	s.mu.Lock()
	now := time.Now()
	var news []event.Event
	for e := s.plan.next(now); e != nil; e = s.plan.next(now) {
		if a, until, skip := s.skipPoll(e, now); skip {
			if ev := e.record(a); ev != nil {
				news = append(news, *ev)
			}
			s.plan.end(e, now, until.Add(s.jitter()))
			continue
		}
		subject, what := e.subject.whole(), e.nextScope(now)
		polls.Go(func() { s.poll(ctx, e, subject, what) })
	}
	due := s.plan.nextDue()
	s.mu.Unlock()
	for _, ev := range news {
		s.opt.OnEvent(ev)
	}
	return due
}

// poll runs one scheduled poll of a device.
func (s *Sweep) poll(ctx context.Context, e *entry, subject hosts.Subject, what scope) {
	a := s.query(ctx, s.opt.Open, subject, e.id, what)
	now := time.Now()
	s.mu.Lock()
	if a.abandoned {
		s.plan.end(e, now, now.Add(min(yieldPause, s.opt.Every)))
		s.mu.Unlock()
		s.wakeLoop()
		return
	}
	news := s.record(e, a)
	s.plan.end(e, now, s.due(e, now))
	s.mu.Unlock()
	s.wakeLoop()
	s.publish(ctx, a, news)
}

// record records the result of a poll. The caller holds mu.
func (s *Sweep) record(e *entry, a answer) *event.Event {
	s.opt.LockOut.Checked(a.device(), a.Err)
	return e.record(a)
}

// publish reports the result of a poll.
func (s *Sweep) publish(ctx context.Context, a answer, news *event.Event) {
	if a.Err == nil {
		s.opt.OnLatency(a.device().Driver, a.Latency)
	}
	s.opt.Engine.Checked(ctx, a.Checked)
	if news != nil {
		s.opt.OnEvent(*news)
	}
}

// due is when the device is polled next. The caller holds mu.
func (s *Sweep) due(e *entry, now time.Time) time.Time {
	if _, until, refused := s.refusedAccount(e); refused {
		return until.Add(s.jitter())
	}
	return now.Add(e.interval(s.opt.Every) + s.jitter())
}

// jitter spreads the polls, so that devices are not polled all at once.
func (s *Sweep) jitter() time.Duration { return rand.N(max(1, s.opt.Every/5)) }

// wakeLoop makes the loop check for polls that may start.
func (s *Sweep) wakeLoop() { live.Signal(s.wake) }

// updateInventory replaces the inventory. It ignores a host without a BMC, as in
// a cloud. Hosts are taken one by one, so that they are never all in memory twice. It reports
// whether there are hosts, and all clusters have been read.
func (s *Sweep) updateInventory(ctx context.Context, round int) (whole bool) {
	var unusable []hosts.Subject
	var listed []*host
	found, unsynced := false, false
	for subject := range s.opt.Engine.Inventory(ctx) {
		if ctx.Err() != nil {
			return false // what was read may be incomplete
		}
		found, unsynced = true, unsynced || isUnsyncedCluster(subject)
		switch r, refused := errors.AsType[*reason.Refusal](subject.Err); {
		case subject.Err == nil:
			s.mu.Lock()
			known := s.hosts[idOf(&subject)]
			again := known != nil && known.round == round
			if h := s.updateHost(subject, time.Now(), round); !again {
				listed = append(listed, h)
			}
			s.mu.Unlock()
		case !refused || r.Reason != reason.NoHost:
			unusable = append(unusable, subject)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return false // hosts may be missing
	}
	s.inventoryRead, s.unusable, s.listed = true, unusable, listed
	for id, h := range s.hosts {
		if h.round != round {
			for _, e := range h.list {
				s.remove(e)
			}
			delete(s.hosts, id)
		}
	}
	s.plan.forget(time.Now())
	return found && !unsynced
}

// isUnsyncedCluster reports whether a subject stands for a whole cluster that has
// not been read yet.
func isUnsyncedCluster(subject hosts.Subject) bool {
	r, ok := errors.AsType[*reason.Refusal](subject.Err)
	return ok && r.Reason == reason.NotSynced
}

func idOf(subject *hosts.Subject) hostID {
	return hostID{subject.Host.Name, subject.Node}
}

// updateHost keeps the records of a host's unchanged devices, and plans polls of
// the others, spread over the interval. The caller holds mu.
func (s *Sweep) updateHost(whole hosts.Subject, now time.Time, round int) *host {
	h := s.hosts[idOf(&whole)]
	if h == nil {
		h = &host{}
		s.hosts[idOf(&whole)] = h
	}
	old, known := h.subject, h.list
	h.subject, h.list, h.round = newSubject(whole, s.access), make([]*entry, 0, len(whole.Host.Levels)), round
	s.access = h.access
	for i, l := range whole.Host.Levels {
		for j, d := range l.Devices {
			id := deviceID{level: i, device: j}
			at := slices.IndexFunc(known, func(e *entry) bool { return e.id == id && sameDevice(old.device(id), d) })
			if at < 0 {
				e := newEntry(id, d, now)
				if s.opt.Every > 0 {
					s.plan.add(e, now.Add(rand.N(s.opt.Every)))
				}
				h.list = append(h.list, e)
				continue
			}
			if isCorrected(old, h.subject, id) {
				s.plan.hasten(known[at], now)
			}
			h.list = append(h.list, known[at])
		}
	}
	for _, e := range known {
		if !slices.Contains(h.list, e) {
			s.remove(e)
		}
	}
	for _, e := range h.list {
		e.subject = h.subject
	}
	return h
}

// remove takes a device out of the inventory. What was reported of it ends: nobody looks at it any more. The caller holds mu.
func (s *Sweep) remove(e *entry) {
	e.gone = true
	if e.reportedBad {
		s.ended = append(s.ended, *e.event("is not checked any more: it has left the inventory, or its host has no BMC that can be used"))
	}
}

// isCorrected reports whether a device has other credentials now, or may be sent its password by now, so that it is to be polled soon.
func isCorrected(old, now *subject, id deviceID) bool {
	was, is := old.device(id), now.device(id)
	return was.Username != is.Username || !was.Password.Equal(is.Password) || old.withheld != nil && now.withheld == nil
}

// sameDevice reports whether the record of one device also applies to the other.
func sameDevice(a, b bmc.Device) bool {
	return a.Driver == b.Driver && a.String() == b.String() && a.Key() == b.Key()
}
