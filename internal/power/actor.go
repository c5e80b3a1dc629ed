package power

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// Actors lets all parts of the process share the BMCs. Each service handles one
// operation at a time, whatever systems or outlets are behind it. Users of one
// device with the same account share one client, and so one session. Services do
// not wait for each other.
//
// Urgent users go first, in the order of their requests. A patient operation in
// flight is cancelled when an urgent one waits. It starts only after the service
// was quiet for a while; an urgent user paces itself by its polls.
type Actors struct {
	open bmc.Opener

	mu       sync.Mutex // guards everything below, and all services and clients
	services map[string]*service
}

// NewActors returns the Actors of the BMCs that open opens. open is called
// without a lock held, once for all users of a device.
func NewActors(open bmc.Opener) *Actors {
	return &Actors{open: open, services: map[string]*service{}}
}

// Urgent returns the opener for runs, probes and people. The Power may be used by
// several goroutines. It is also a Describer and an Auditor; these two operations
// are patient for all users.
func (a *Actors) Urgent() bmc.Opener {
	return func(d bmc.Device) (bmc.Power, error) { return a.acquire(d, true) }
}

// Patient returns the opener for the BMC health check, which only reads: Send is
// refused.
func (a *Actors) Patient() bmc.Opener {
	return func(d bmc.Device) (bmc.Power, error) { return a.acquire(d, false) }
}

// acquire returns a handle of the client for d to one user.
func (a *Actors) acquire(d bmc.Device, urgent bool) (bmc.Power, error) {
	if d.Unusable != nil {
		return nil, d.Unusable
	}
	a.mu.Lock()
	s := a.services[d.Service()]
	if s == nil {
		s = &service{actors: a, name: d.Service()}
		a.services[s.name] = s
	}
	c := s.client(d)
	a.mu.Unlock()
	c.once.Do(func() { c.power, c.err = a.open(d) })
	if c.err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		s.forget(c)
		s.next()
		return nil, c.err
	}
	return &handle{service: s, client: c, urgent: urgent}, nil
}

// client is one Power, shared by the users of one device with one account.
type client struct {
	device       bmc.Device
	once         sync.Once
	power        bmc.Power
	err          error
	users        int
	close        *operation    // queued when the last user has left
	lastIdentity *bmc.Identity // of the last reading of any user; only the one operation in flight uses it
}

// sameClient reports whether one client serves both devices: all that leads to
// the device, what is trusted there, how it is asked, and the account are equal.
func sameClient(a, b bmc.Device) bool {
	return a.Driver == b.Driver && a.Endpoint == b.Endpoint && a.Provider == b.Provider &&
		a.Agent == b.Agent && maps.Equal(a.Parameters, b.Parameters) && a.TLS == b.TLS &&
		a.BasicAuth == b.BasicAuth && a.IgnoreUUID == b.IgnoreUUID && slices.Equal(a.CipherSuites, b.CipherSuites) &&
		a.SystemUUID == b.SystemUUID && a.Networks == b.Networks && a.Username == b.Username &&
		maps.EqualFunc(a.SecretParameters, b.SecretParameters, bmc.Secret.Equal) && a.Password.Equal(b.Password) && a.BMCKey.Equal(b.BMCKey)
}

// handle is one user's reference to a shared client.
type handle struct {
	service      *service
	client       *client
	urgent       bool
	closed       bool
	lastIdentity *bmc.Identity // of the last reading of this user; guarded by actors.mu
}

var (
	_ bmc.Power     = (*handle)(nil)
	_ bmc.Describer = (*handle)(nil)
	_ bmc.Auditor   = (*handle)(nil)
)

// Read reads the power state.
func (h *handle) Read(ctx context.Context) (bmc.Reading, error) {
	op := &operation{name: "read power state", handle: h, urgent: h.urgent}
	r, err := ask(ctx, op, func(ctx context.Context, p bmc.Power) (bmc.Reading, error) {
		start := time.Now()
		r, err := p.Read(ctx)
		r.Took = time.Since(start)
		if over := bmc.Over(ctx, time.Now()); err == nil && over != nil && r.State != bmc.On { // it may have waited while this process was frozen // I1
			return bmc.Reading{Took: r.Took}, op.fail(bmc.KindUnreachable, bmc.SentNo, fmt.Errorf("its answer came too late: %w", over))
		}
		if err == nil {
			h.client.lastIdentity = &r.Identity
		}
		return r, err
	})
	if err == nil {
		h.service.actors.mu.Lock()
		defer h.service.actors.mu.Unlock()
		h.lastIdentity = &r.Identity
	}
	return r, err
}

// Send sends an absolute command. A Power sends it to the machine that it read
// last. That must be the machine that this user read, because others read through
// the same Power. // I8
func (h *handle) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	op := &operation{name: "send " + c.String(), handle: h, urgent: h.urgent, commands: true}
	if !h.urgent {
		return bmc.Receipt{}, op.fail(bmc.KindUnsupported, bmc.SentNo, errors.New("the BMC health check sends no commands"))
	}
	return ask(ctx, op, func(ctx context.Context, p bmc.Power) (bmc.Receipt, error) {
		h.service.actors.mu.Lock()
		saw := h.lastIdentity
		h.service.actors.mu.Unlock()
		if who := h.client.lastIdentity; saw != nil && who != nil && *saw != *who {
			return bmc.Receipt{}, op.fail(bmc.KindIdentity, bmc.SentNo, fmt.Errorf("system %q (serial %q) was read, but %q (serial %q) has answered since; no command was sent",
				saw.UUID, saw.Serial, who.UUID, who.Serial))
		}
		return p.Send(ctx, c)
	})
}

// Describe calls the client if it is a Describer.
func (h *handle) Describe(ctx context.Context) (bmc.Description, error) {
	op := &operation{name: "describe", handle: h}
	d, able := h.client.power.(bmc.Describer)
	if !able {
		return bmc.Description{}, op.fail(bmc.KindUnsupported, bmc.SentNo, errors.New("its driver does not support descriptions"))
	}
	return ask(ctx, op, func(ctx context.Context, _ bmc.Power) (bmc.Description, error) { return d.Describe(ctx) })
}

// Audit calls the client if it is an Auditor.
func (h *handle) Audit(ctx context.Context) ([]bmc.Finding, error) {
	op := &operation{name: "audit", handle: h}
	d, able := h.client.power.(bmc.Auditor)
	if !able {
		return nil, op.fail(bmc.KindUnsupported, bmc.SentNo, errors.New("its driver does not support audits"))
	}
	return ask(ctx, op, func(ctx context.Context, _ bmc.Power) ([]bmc.Finding, error) { return d.Audit(ctx) })
}

// Close ends this use. The last user's Close ends the session on the BMC after
// the operation in flight. If ctx ends first, the actor does it in the
// background.
func (h *handle) Close(ctx context.Context) error {
	a := h.service.actors
	a.mu.Lock()
	if h.closed {
		a.mu.Unlock()
		return nil
	}
	h.closed = true
	op := h.service.releaseClient(h)
	a.mu.Unlock()
	if op == nil {
		return nil // other users remain
	}
	timer := time.NewTimer(CloseTimeout)
	defer timer.Stop()
	select {
	case <-op.done:
		return op.closeErr
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}

// ErrInUse marks the error of an operation that was not carried out, or not
// completed, because others use the BMC. It is no failure of the BMC.
var ErrInUse = errors.New("the BMC is in use")

// errNotAsked marks the error of an operation that never had its turn.
var errNotAsked = errors.New("not asked")

var errClosed = errors.New("used after it was closed")

// grace is how long to wait for an operation after its ctx ended. A Power must
// end it then, and knows best what happened. After that the wait ends.
const grace = 100 * time.Millisecond

// operation is one use of a client.
type operation struct {
	name     string
	handle   *handle
	urgent   bool
	commands bool // it may change the power state
	closes   bool
	caller   context.Context // of the call that waits for it
	run      func(context.Context)
	done     chan struct{} // closed at the end

	started  time.Time
	cancel   context.CancelFunc
	yielded  bool // cancelled for an urgent operation
	dropped  bool // its handle was closed before its turn
	closeErr error
}

// ask queues op, waits for its turn and runs f.
func ask[T any](ctx context.Context, op *operation, f func(context.Context, bmc.Power) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	got := make(chan answer, 1) // buffered: the caller may stop waiting before op ends
	op.caller = ctx
	op.run = func(ctx context.Context) {
		value, err := take(ctx, func() (T, error) { return f(ctx, op.handle.client.power) })
		got <- answer{value, err}
	}
	if err := op.handle.service.submit(op); err != nil {
		return none, err
	}
	select {
	case <-op.done:
	case <-ctx.Done():
		if err := op.handle.service.abandon(op); err != nil {
			return none, err
		}
	}
	if op.dropped {
		return none, op.fail(bmc.KindUnsupported, bmc.SentNo, errClosed)
	}
	a := <-got
	if a.err != nil && op.yielded {
		return none, op.fail(bmc.KindBusy, bmc.SentNo, fmt.Errorf("%w: cancelled for a more urgent operation", ErrInUse))
	}
	return a.value, a.err
}

// fail returns the error of an operation that the actor ends.
func (o *operation) fail(k bmc.Kind, sent bmc.Sent, err error) error {
	return &bmc.Error{Kind: k, Op: o.name, Addr: o.handle.client.device.String(), Sent: sent, Err: err}
}

// busy returns why op did not get its turn while r was running.
func (o *operation) busy(r *operation) error {
	ended := o.caller.Err()
	switch {
	case r == nil:
		return o.fail(bmc.KindBusy, bmc.SentNo, fmt.Errorf("%w: its last operation ended a moment ago: %w", ErrInUse, ended))
	case r.isHung():
		return o.fail(bmc.KindUnreachable, bmc.SentNo, fmt.Errorf("%w: %q has been hanging there for %s: %w", errNotAsked, r.name, time.Since(r.started).Round(time.Second), ended))
	}
	return o.fail(bmc.KindBusy, bmc.SentNo, fmt.Errorf("%w: %q is in progress: %w", ErrInUse, r.name, ended))
}

// isHung reports whether o is running and should have returned.
func (o *operation) isHung() bool {
	return o.yielded || o.caller.Err() != nil || o.closes && time.Since(o.started) > CloseTimeout+grace
}
