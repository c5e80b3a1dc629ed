package sweep

import (
	"container/heap"
	"time"
)

// serviceGap is the pause that a BMC gets between two looks of the sweep: some
// stall, or restart, when they are polled fast.
const serviceGap = 5 * time.Second

// schedule decides which device is asked next. It is pure: it takes the time.
type schedule struct {
	atOnce int // looks in flight, at most

	later    byDue            // by due time
	ready    []*entry         // due, in the order in which they became so
	running  int              // looks in flight
	suspects int              // those among them that failed last time
	services map[string]*turn // by bmc.Device.Service
}

// turn is whether what must be asked by one at a time may be asked.
type turn struct {
	busy bool
	held int       // looks that people ordered there
	free time.Time // not before
}

func newSchedule(atOnce int) *schedule {
	return &schedule{atOnce: atOnce, services: map[string]*turn{}}
}

// add plans a look at e.
func (s *schedule) add(e *entry, due time.Time) {
	e.due = due
	heap.Push(&s.later, e)
}

// hasten brings a planned look forward.
func (s *schedule) hasten(e *entry, due time.Time) {
	if e.place >= 0 && due.Before(e.due) {
		e.due = due
		heap.Fix(&s.later, e.place)
	}
}

// next gives a device that may be asked now, and counts it as being asked; nil
// when there is none. One that is gone is dropped on the way.
func (s *schedule) next(now time.Time) *entry {
	for len(s.later) > 0 && (s.later[0].gone || !s.later[0].due.After(now)) {
		if e := heap.Pop(&s.later).(*entry); !e.gone {
			s.ready = append(s.ready, e)
		}
	}
	for i := 0; i < len(s.ready) && s.running < s.atOnce; i++ {
		e := s.ready[i]
		if v := s.service(e); !e.gone && (e.suspect() && s.suspects >= s.suspectSlots() || v.busy || v.held > 0) {
			continue // it keeps its place
		}
		s.ready = append(s.ready[:i], s.ready[i+1:]...)
		i--
		switch free := s.service(e).free; {
		case e.gone:
		case free.After(now):
			s.add(e, free)
		default:
			s.begin(e)
			return e
		}
	}
	return nil
}

// suspectSlots is how many looks may be spent at once on devices that failed
// last time: each may hold its slot for the whole timeout.
func (s *schedule) suspectSlots() int { return max(1, s.atOnce/2) }

func (s *schedule) begin(e *entry) {
	e.asked = e.suspect()
	s.running++
	if e.asked {
		s.suspects++
	}
	s.service(e).busy = true
}

// end counts a look as over; the next one at this device is due then.
func (s *schedule) end(e *entry, now, due time.Time) {
	s.running--
	if e.asked {
		s.suspects--
	}
	v := s.service(e)
	v.busy, v.free = false, now.Add(serviceGap)
	if !e.gone {
		s.add(e, due)
	}
}

// hold keeps the sweep from a service that people ask, where its look would stand
// in their way; let ends that.
func (s *schedule) hold(e *entry) { s.service(e).held++ }

func (s *schedule) let(e *entry, now time.Time) {
	v := s.service(e)
	v.held--
	v.free = now.Add(serviceGap)
}

// wake is when the next look is due; zero when none is planned.
func (s *schedule) wake() time.Time {
	if len(s.later) == 0 {
		return time.Time{}
	}
	return s.later[0].due
}

func (s *schedule) service(e *entry) *turn {
	v := s.services[e.service]
	if v == nil {
		v = &turn{}
		s.services[e.service] = v
	}
	return v
}

// forget drops the services that rest and have nothing to remember.
func (s *schedule) forget(now time.Time) {
	for name, v := range s.services {
		if !v.busy && v.held == 0 && !v.free.After(now) {
			delete(s.services, name)
		}
	}
}

// byDue is a heap of entries, the earliest first. An entry that is not in it has
// place -1.
type byDue []*entry

func (h byDue) Len() int           { return len(h) }
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
