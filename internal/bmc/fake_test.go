package bmc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// yard is where the devices of a test stand. It records what is done to them.
type yard struct {
	mu     sync.Mutex
	opened []*fakePower
	log    []string
	// busy counts the operations in flight by service, most is its maximum.
	busy, most map[string]int
	// read is what a Read does; nil answers On at once.
	read func(ctx context.Context, d Device) (Reading, error)
	send func(ctx context.Context, d Device, c Command) (Receipt, error)
	fail error // of the next open
}

func newYard() *yard { return &yard{busy: map[string]int{}, most: map[string]int{}} }

var fakeSessions atomic.Uint64

// fakePower is a Power of a yard; it fails when used by two at once, or after
// it was closed.
type fakePower struct {
	yard    *yard
	device  Device
	session uint64
	closed  int
}

func (y *yard) open(d Device) (Power, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if err := y.fail; err != nil {
		y.fail = nil
		return nil, err
	}
	p := &fakePower{yard: y, device: d, session: fakeSessions.Add(1)}
	y.opened = append(y.opened, p)
	return p, nil
}

// use records an operation for as long as it runs.
func (p *fakePower) use(what string) (done func()) {
	y, service := p.yard, p.device.Service()
	y.mu.Lock()
	defer y.mu.Unlock()
	if p.closed > 0 && what != "close" {
		panic(what + " of a client that was closed")
	}
	y.log = append(y.log, fmt.Sprintf("%s %s", what, p.device.Key()))
	y.busy[service]++
	y.most[service] = max(y.most[service], y.busy[service])
	return func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.busy[service]--
	}
}

func (p *fakePower) Read(ctx context.Context) (Reading, error) {
	defer p.use("read")()
	if p.yard.read != nil {
		r, err := p.yard.read(ctx, p.device)
		r.Session = p.session
		return r, err
	}
	return Reading{State: On, At: time.Now(), Session: p.session}, nil
}

func (p *fakePower) Send(ctx context.Context, c Command) (Receipt, error) {
	defer p.use("send " + c.String())()
	if p.yard.send != nil {
		return p.yard.send(ctx, p.device, c)
	}
	return Receipt{}, nil
}

func (p *fakePower) Close(context.Context) error {
	defer p.use("close")()
	p.yard.mu.Lock()
	defer p.yard.mu.Unlock()
	p.closed++
	return nil
}

// did is what was done so far, in order.
func (y *yard) did() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return append([]string(nil), y.log...)
}

// sessions is how many clients were opened, and how many of them closed.
func (y *yard) sessions() (opened, closed int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range y.opened {
		closed += min(p.closed, 1)
	}
	return len(y.opened), closed
}

// talking is a fake that can be described and audited.
type talking struct {
	*fakePower
	describe func(context.Context) (Description, error)
}

func (p *talking) Describe(ctx context.Context) (Description, error) {
	defer p.use("describe")()
	return p.describe(ctx)
}

func (p *talking) Audit(context.Context) ([]Finding, error) {
	defer p.use("audit")()
	return []Finding{{Code: FindingClock}}, nil
}

// deviceAt is a BMC at a host of the yard.
func deviceAt(host string) Device {
	return Device{
		Driver: DriverIPMI, Endpoint: Endpoint{Protocol: ProtocolIPMI, Host: host, Port: 623},
		Username: "admin", Password: NewSecret(canary),
	}
}

// takes is an answer that comes after d, unless ctx ends.
func takes(d time.Duration) func(context.Context, Device) (Reading, error) {
	return func(ctx context.Context, _ Device) (Reading, error) {
		if err := pause(ctx, d); err != nil {
			return Reading{}, &Error{Kind: KindUnreachable, Op: "read power state", Addr: "fake", Err: err}
		}
		return Reading{State: On, At: time.Now()}, nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
