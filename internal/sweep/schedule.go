package sweep

import (
	"container/heap"
	"time"
)

// serviceGap is the pause between two polls of one BMC. Some BMCs stall or
// restart when they are polled fast.
const serviceGap = 5 * time.Second

// schedule decides which device is polled next. It is pure: the caller passes the
// time.
type schedule struct {
	concurrency int // maximum number of polls in flight

	later    byDue                    // by due time
	ready    []*entry                 // due, in the order in which they became due
	running  int                      // polls in flight
	suspects int                      // polls in flight of devices whose last poll failed
	services map[string]*serviceState // by bmc.Device.Service
}

// serviceState tells whether a service, which answers one request at a time, may
// be polled.
type serviceState struct {
	busy      bool
	blockers  int       // orders in progress there
	notBefore time.Time // no poll before this time
}

func newSchedule(concurrency int) *schedule {
	return &schedule{concurrency: concurrency, services: map[string]*serviceState{}}
}

// add plans a poll of e.
func (s *schedule) add(e *entry, due time.Time) {
	e.due = due
	heap.Push(&s.later, e)
}

// bringForward moves a planned poll to an earlier time.
func (s *schedule) bringForward(e *entry, due time.Time) {
	if e.place >= 0 && due.Before(e.due) {
		e.due = due
		heap.Fix(&s.later, e.place)
	}
}

// hasten makes a poll of e begin soon that reads what is so now: one in flight may have begun before.
func (s *schedule) hasten(e *entry, now time.Time) {
	if s.bringForward(e, now); e.polled {
		e.again = true
	}
}

// next returns a device that may be polled now and marks it as being polled; nil
// if there is none. It drops devices that were removed.
func (s *schedule) next(now time.Time) *entry {
	for len(s.later) > 0 && (s.later[0].gone || !s.later[0].due.After(now)) {
		if e := heap.Pop(&s.later).(*entry); !e.gone {
			s.ready = append(s.ready, e)
		}
	}
	for i := 0; i < len(s.ready) && s.running < s.concurrency; i++ {
		e := s.ready[i]
		if v := s.service(e); !e.gone && (e.isSuspect() && s.suspects >= s.suspectSlots() || v.busy || v.blockers > 0) {
			continue // stays in the queue
		}
		s.ready = append(s.ready[:i], s.ready[i+1:]...)
		i--
		switch free := s.service(e).notBefore; {
		case e.gone:
		case free.After(now):
			s.add(e, free)
		default:
			s.start(e)
			return e
		}
	}
	return nil
}

// suspectSlots is how many slots devices whose last poll failed may use: each
// poll of them may take its whole timeout.
func (s *schedule) suspectSlots() int { return max(1, s.concurrency/2) }

func (s *schedule) start(e *entry) {
	e.countedSuspect, e.polled = e.isSuspect(), true
	s.running++
	if e.countedSuspect {
		s.suspects++
	}
	s.service(e).busy = true
}

// end marks a poll as over and plans the next one of this device at due.
func (s *schedule) end(e *entry, now, due time.Time) {
	s.running--
	if e.countedSuspect {
		s.suspects--
	}
	v := s.service(e)
	v.busy, v.notBefore = false, now.Add(serviceGap)
	if e.again {
		due = now
	}
	if e.polled, e.again = false, false; !e.gone {
		s.add(e, due)
	}
}

// block keeps scheduled polls away from a service while a person's order uses it.
// unblock ends that.
func (s *schedule) block(e *entry) { s.service(e).blockers++ }

func (s *schedule) unblock(e *entry, now time.Time) {
	v := s.service(e)
	v.blockers--
	v.notBefore = now.Add(serviceGap)
}

// nextDue is when the next poll is due; zero if none is planned.
func (s *schedule) nextDue() time.Time {
	if len(s.later) == 0 {
		return time.Time{}
	}
	return s.later[0].due
}

func (s *schedule) service(e *entry) *serviceState {
	v := s.services[e.service]
	if v == nil {
		v = &serviceState{}
		s.services[e.service] = v
	}
	return v
}

// forget drops the state of services without a poll, an order or a pause.
func (s *schedule) forget(now time.Time) {
	for name, v := range s.services {
		if !v.busy && v.blockers == 0 && !v.notBefore.After(now) {
			delete(s.services, name)
		}
	}
}

// byDue is a heap of entries by due time. An entry outside it has place -1.
type byDue []*entry

func (h byDue) Len() int { return len(h) }

func (h byDue) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h byDue) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *byDue) Push(x any) {
	e := x.(*entry)
	e.place = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *byDue) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h, e.place = (*h)[:last], -1
	return e
}

// refusedAccount returns the refusal of its account in place of a poll of e, and until when
// it applies; false if the account may be tried.
func (s *Sweep) refusedAccount(e *entry) (answer, time.Time, bool) {
	at, until, err := s.opt.LockOut.RefusedCheck(e.device())
	if err == nil {
		return answer{}, time.Time{}, false
	}
	a := answerOf(e.subject.whole(), e.id)
	a.At, a.Err = at, err
	return a, until, true
}

// skipPoll returns an answer in place of a poll, and until when it applies; false
// if the device may be polled. A poll is skipped if the account was refused, or
// if no password may be sent to the device. // I10
func (s *Sweep) skipPoll(e *entry, now time.Time) (answer, time.Time, bool) {
	if e.subject.withheld == nil {
		return s.refusedAccount(e)
	}
	a := answerOf(e.subject.whole(), e.id)
	a.Err = e.subject.withheld
	return a, now.Add(e.interval(s.opt.Every)), true
}
