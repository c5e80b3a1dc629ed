package power

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	// A patient operation starts this long after the last urgent one of others: a
	// run that polls is left alone with its BMC and its session. // bmc.md 7.5
	afterUrgent = 5 * time.Second
	// ... and this long after a patient one of others: BMCs stall when they are
	// asked without pause.
	afterPatient = time.Second
)

// service is one BMC or PDU and those who want something of it. Everything in
// it is guarded by actors.mu.
type service struct {
	actors  *Actors
	name    string
	clients []*client

	running                  *operation // at most one goroutine for each service
	urgent, closing, patient []*operation

	lastUrgent, lastPatient visit
	timer                   *time.Timer // calls next when a patient operation, or the end, is due
}

// visit is the end of an operation, and whose it was.
type visit struct {
	at     time.Time
	handle *handle
}

// client finds or makes the client for d, and counts one more user.
func (s *service) client(d bmc.Device) *client {
	for _, c := range s.clients {
		if sameClient(c.device, d) {
			c.users++
			if c.close != nil { // its session is still good
				s.closing = without(s.closing, c.close)
				close(c.close.done)
				c.close = nil
			}
			return c
		}
	}
	c := &client{device: d, users: 1}
	s.clients = append(s.clients, c)
	return c
}

// forget drops a client that nobody can use.
func (s *service) forget(c *client) {
	s.clients = without(s.clients, c)
}

// release counts one user of h's client less, and queues the end of its session
// when that was the last; nil when it was not. What h still waits for is not done.
func (s *service) release(h *handle) *operation {
	s.urgent, s.patient = s.drop(s.urgent, h), s.drop(s.patient, h)
	c := h.client
	if c.users--; c.users > 0 {
		return nil
	}
	op := &operation{name: "close session", handle: h, closes: true, done: make(chan struct{})}
	op.caller = context.Background() // the user's time may be over; the BMC's session must end
	op.run = func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		op.closeErr = c.power.Close(ctx)
	}
	c.close = op
	s.closing = append(s.closing, op)
	s.next()
	return op
}

// drop ends the operations of h in a queue.
func (s *service) drop(queue []*operation, h *handle) []*operation {
	return slices.DeleteFunc(queue, func(op *operation) bool {
		if op.handle != h {
			return false
		}
		op.dropped = true
		close(op.done)
		return true
	})
}

// submit queues op. An urgent one makes a patient one in flight give way.
func (s *service) submit(op *operation) error {
	s.actors.mu.Lock()
	defer s.actors.mu.Unlock()
	if op.handle.closed {
		return op.fail(bmc.KindUnsupported, bmc.SentNo, errClosed)
	}
	if err := op.caller.Err(); err != nil {
		return op.fail(bmc.KindUnreachable, bmc.SentNo, fmt.Errorf("%w: %w", errNotAsked, err))
	}
	op.done = make(chan struct{})
	if !op.urgent {
		s.patient = append(s.patient, op)
		s.next()
		return nil
	}
	s.urgent = append(s.urgent, op)
	if r := s.running; r != nil && !r.urgent && !r.closes && !r.yielded {
		r.yielded = true
		r.cancel()
	}
	s.next()
	return nil
}

// leave is for a caller whose ctx ended. nil means that op has ended and its
// answer is there. An operation that had started is as good as asked.
func (s *service) leave(op *operation) error {
	s.actors.mu.Lock()
	started := !op.started.IsZero()
	if !started {
		s.urgent, s.patient = without(s.urgent, op), without(s.patient, op)
		defer s.actors.mu.Unlock()
		s.next()
		return op.busy(s.running)
	}
	s.actors.mu.Unlock()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-op.done:
		return nil
	case <-timer.C:
	}
	sent := bmc.SentNo
	if op.commands {
		sent = bmc.SentMaybe
	}
	return op.fail(bmc.KindUnreachable, sent, fmt.Errorf("its driver does not return: %w", op.caller.Err()))
}

// next starts what is due, if nothing is running: urgent ones, then ends of
// sessions, then patient ones. A service without users goes when it was quiet.
func (s *service) next() {
	if s.running != nil {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	switch {
	case len(s.urgent) > 0:
		s.start(&s.urgent)
	case len(s.closing) > 0:
		op := s.closing[0]
		op.handle.client.close = nil
		s.forget(op.handle.client) // from here on a new user gets a new client
		s.start(&s.closing)
	case len(s.patient) > 0:
		if wait := time.Until(s.due(s.patient[0].handle)); wait > 0 {
			s.later(wait)
			return
		}
		s.start(&s.patient)
	case len(s.clients) == 0:
		if wait := time.Until(s.due(nil)); wait > 0 {
			s.later(wait)
			return
		}
		if s.actors.services[s.name] == s {
			delete(s.actors.services, s.name)
		}
	}
}

// due is when a patient operation of h may start.
func (s *service) due(h *handle) time.Time {
	var due time.Time
	if v := s.lastUrgent; v.handle != h {
		due = v.at.Add(afterUrgent)
	}
	if v := s.lastPatient; v.handle != h && due.Before(v.at.Add(afterPatient)) {
		due = v.at.Add(afterPatient)
	}
	return due
}

func (s *service) later(wait time.Duration) {
	s.timer = time.AfterFunc(wait, func() {
		s.actors.mu.Lock()
		defer s.actors.mu.Unlock()
		s.next()
	})
}

// start runs the first of a queue in a goroutine of its own.
func (s *service) start(queue *[]*operation) {
	op := (*queue)[0]
	*queue = (*queue)[1:]
	ctx, cancel := context.WithCancel(op.caller)
	op.started, op.cancel = time.Now(), cancel
	s.running = op
	go func() {
		defer cancel()
		op.run(ctx)
		s.actors.mu.Lock()
		defer s.actors.mu.Unlock()
		s.ended(op)
	}()
}

func (s *service) ended(op *operation) {
	s.running = nil
	v := visit{time.Now(), op.handle}
	if op.urgent {
		s.lastUrgent = v
	} else {
		s.lastPatient = v
	}
	close(op.done)
	s.next()
}

// without is list without x.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(y T) bool { return y == x })
}
