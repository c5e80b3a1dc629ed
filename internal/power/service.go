package power

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	// A patient operation starts this long after the last urgent one of another
	// user, so that a run that polls keeps its BMC and its session.
	afterUrgent = 5 * time.Second
	// It starts this long after a patient one of another user: BMCs stall when they
	// are polled without a pause.
	afterPatient = time.Second
)

// service is one BMC or PDU and its users. actors.mu guards all fields.
type service struct {
	actors  *Actors
	name    string
	clients []*client

	running                  *operation // at most one per service
	urgent, closing, patient []*operation

	lastUrgent, lastPatient lastUse
	timer                   *time.Timer // calls next when a patient operation, or the removal of the service, is due
}

// lastUse is the end of an operation, and its user.
type lastUse struct {
	at     time.Time
	handle *handle
}

// client finds or creates the client for d, and adds a user.
func (s *service) client(d bmc.Device) *client {
	for _, c := range s.clients {
		if sameClient(c.device, d) {
			c.users++
			if c.close != nil { // reuse its session
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

// forget removes a client that has no users.
func (s *service) forget(c *client) {
	s.clients = without(s.clients, c)
}

// releaseClient removes a user of h's client. After the last user it queues the
// end of the session and returns that operation, else nil. Operations of h that
// still wait are dropped.
func (s *service) releaseClient(h *handle) *operation {
	s.urgent, s.patient = s.drop(s.urgent, h), s.drop(s.patient, h)
	c := h.client
	if c.users--; c.users > 0 {
		return nil
	}
	op := &operation{name: "close session", handle: h, closes: true, done: make(chan struct{})}
	op.caller = context.Background() // the user's ctx may have ended, but the session on the BMC must end
	op.run = func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, CloseTimeout)
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

// submit queues op. An urgent one cancels a patient one in flight.
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

// abandon is called when the ctx of the caller ended. nil means that op has ended
// and its answer is available. An operation that has started counts as sent.
func (s *service) abandon(op *operation) error {
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
	return op.fail(bmc.KindUnreachable, sent, fmt.Errorf("its driver did not return: %w", op.caller.Err()))
}

// next starts what is due, if nothing is running: urgent operations, then ends of
// sessions, then patient operations. It removes a service that has no users and
// was quiet.
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
		s.forget(op.handle.client) // a new user now gets a new client
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

// start runs the first operation of a queue in a goroutine.
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
	v := lastUse{time.Now(), op.handle}
	if op.urgent {
		s.lastUrgent = v
	} else {
		s.lastPatient = v
	}
	close(op.done)
	s.next()
}

// without returns list without x.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(y T) bool { return y == x })
}
