package power

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// canary is a password that must not come out of anything.
const canary = "hunter2hunter2"

// A system UUID, and how some BMCs tell it.
const (
	hostUUID = "4c4c4544-0051-4d10-8059-b4c04f563733"
	swapped  = "44454c4c-5100-104d-8059-b4c04f563733"
	reversed = "3337564f-c0b4-5980-104d-510044454c4c"
)

// empty is the proof of the product: 3 s apart, 5 s old at most.
func empty() bmc.Proof { return bmc.Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second} }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// yard is where the devices of a test stand. It records what is done to them.
type yard struct {
	mu     sync.Mutex
	opened []*fakePower
	log    []string
	// busy counts the operations in flight by service, most is its maximum.
	busy, most map[string]int
	// read is what a Read does; nil answers On at once.
	read func(ctx context.Context, d bmc.Device) (bmc.Reading, error)
	send func(ctx context.Context, d bmc.Device, c bmc.Command) (bmc.Receipt, error)
	fail error // of the next open
}

func newYard() *yard { return &yard{busy: map[string]int{}, most: map[string]int{}} }

var fakeSessions atomic.Uint64

// fakePower is a Power of a yard; it fails when used by two at once, or after
// it was closed.
type fakePower struct {
	yard    *yard
	device  bmc.Device
	session uint64
	closed  int
}

func (y *yard) open(d bmc.Device) (bmc.Power, error) {
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

func (p *fakePower) Read(ctx context.Context) (bmc.Reading, error) {
	defer p.use("read")()
	if p.yard.read != nil {
		r, err := p.yard.read(ctx, p.device)
		r.Session = p.session
		return r, err
	}
	return bmc.Reading{State: bmc.On, At: time.Now(), Session: p.session}, nil
}

func (p *fakePower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	defer p.use("send " + c.String())()
	if p.yard.send != nil {
		return p.yard.send(ctx, p.device, c)
	}
	return bmc.Receipt{}, nil
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
	describe func(context.Context) (bmc.Description, error)
}

func (p *talking) Describe(ctx context.Context) (bmc.Description, error) {
	defer p.use("describe")()
	return p.describe(ctx)
}

func (p *talking) Audit(context.Context) ([]bmc.Finding, error) {
	defer p.use("audit")()
	return []bmc.Finding{{Code: bmc.FindingClock}}, nil
}

// inYard plays a test in virtual time, with actors of devices that answer a reading after this time.
func inYard(t *testing.T, after time.Duration, test func(t *testing.T, y *yard, a *Actors)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		if after > 0 {
			y.read = takes(after)
		}
		test(t, y, NewActors(y.open))
	})
}

// refused asserts that err is of this kind, and that what was asked for was never sent.
func refused(t *testing.T, err error, k bmc.Kind) {
	t.Helper()
	e, ok := errors.AsType[*bmc.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, k, e.Kind)
	assert.Equal(t, bmc.SentNo, e.Sent)
}

// deviceAt is a BMC at a host of the yard.
func deviceAt(host string) bmc.Device {
	return bmc.Device{
		Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: host, Port: 623},
		Username: "admin", Password: bmc.NewSecret(canary),
	}
}

// takes is an answer that comes after d, unless ctx ends.
func takes(d time.Duration) func(context.Context, bmc.Device) (bmc.Reading, error) {
	return func(ctx context.Context, _ bmc.Device) (bmc.Reading, error) {
		if err := pause(ctx, d); err != nil {
			return bmc.Reading{}, &bmc.Error{Kind: bmc.KindUnreachable, Op: "read power state", Addr: "fake", Err: err}
		}
		return bmc.Reading{State: bmc.On, At: time.Now()}, nil
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
