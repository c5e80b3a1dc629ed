package power

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
)

// TestStuckPower: a driver that ignores its ctx costs one goroutine, and others
// their own deadlines; what they wanted is not done behind their backs.
func TestStuckPower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		stuck := make(chan struct{})
		y.send = func(context.Context, bmc.Device, bmc.Command) (bmc.Receipt, error) {
			<-stuck
			return bmc.Receipt{}, nil
		}
		a := NewActors(y.open)
		p, q := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a"))
		good := opened(t, a.Urgent(), deviceAt("b"))
		start := time.Now()
		_, err := p.Send(within(t, 10*time.Second), bmc.CommandOff)
		assert.Equal(t, 10*time.Second+grace, time.Since(start))
		e, ok := errors.AsType[*bmc.Error](err)
		require.True(t, ok)
		assert.Equal(t, bmc.KindUnreachable, e.Kind)
		assert.Equal(t, bmc.SentMaybe, e.Sent, "it may be sent yet") // I2

		before := runtime.NumGoroutine()
		for range 100 {
			start = time.Now()
			_, err = q.Read(within(t, time.Second))
			assert.Equal(t, time.Second, time.Since(start))
			assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err))
			assert.NotErrorIs(t, err, ErrInUse, "a BMC that hangs is not dependable")
			assert.ErrorContains(t, err, `"send off" has been hanging there`)
			require.NoError(t, errOf(good.Read(t.Context())), "another service is not delayed")
		}
		synctest.Wait()
		assertGoroutines(t, before)

		start = time.Now()
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, q.Close(t.Context()))
		assert.LessOrEqual(t, time.Since(start), 2*CloseTimeout, "left to the actor")
		close(stuck)
		require.NoError(t, good.Close(t.Context()))
		quiet(t, a)
		n, closed := y.sessions()
		assert.Equal(t, n, closed, "every session was ended, late but surely")
	})
}

// assertGoroutines asserts that hardly more are left: what leaks here leaks by the
// hundred. One that has done its work may be counted for a moment yet, and those of
// the runtime come and go.
func assertGoroutines(t *testing.T, before int) {
	t.Helper()
	most := before + 3
	for range 10_000_000 { // a busy machine may let one wait for seconds
		if runtime.NumGoroutine() <= most {
			return
		}
		runtime.Gosched()
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), most)
}

// TestStuckServiceKeepsLittle: users that come and go at a hung BMC leave one
// client and one goroutine there.
func TestStuckServiceKeepsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		stuck := make(chan struct{})
		y.read = func(context.Context, bmc.Device) (bmc.Reading, error) { <-stuck; return bmc.Reading{}, nil }
		a := NewActors(y.open)
		for range 200 {
			p := opened(t, a.Patient(), deviceAt("a"))
			require.Error(t, errOf(p.Read(within(t, time.Second))))
			require.NoError(t, p.Close(t.Context()))
		}
		n, _ := y.sessions()
		assert.Equal(t, 1, n)
		a.mu.Lock()
		s := a.services["a"]
		assert.Len(t, s.clients, 1)
		assert.Len(t, s.closing, 1)
		assert.Empty(t, s.patient)
		a.mu.Unlock()
		assert.Equal(t, []string{"read a"}, y.did())
		close(stuck)
		quiet(t, a)
	})
}

// TestClosesAfterWhatIsInFlight: the session ends when the last user's reading
// has, and a user who comes before that goes on with it.
func TestClosesAfterWhatIsInFlight(t *testing.T) {
	inYard(t, time.Second, func(t *testing.T, y *yard, a *Actors) {
		p := opened(t, a.Urgent(), deviceAt("a"))
		go func() { _, _ = p.Read(t.Context()) }()
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, p.Close(ended), "who has no time leaves it to the actor")
		q := opened(t, a.Urgent(), deviceAt("a"))
		require.NoError(t, errOf(q.Read(t.Context())))
		assert.Equal(t, []string{"read a", "read a"}, y.did())
		go func() { _, _ = q.Read(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, q.Close(t.Context()))
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, []string{"read a", "read a", "read a", "close a"}, y.did())
		quiet(t, a)
	})
}

// TestThousandHungBMCs: 1,000 BMCs that never answer, and ten that do, through
// the same actors. Nobody waits for another, and nothing is left. // issue 4, 10
func TestThousandHungBMCs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hung, good, rounds = 1000, 10, 30
		y := newYard()
		y.read = func(ctx context.Context, d bmc.Device) (bmc.Reading, error) {
			if d.Username == "hung" {
				<-ctx.Done()
				return bmc.Reading{}, &bmc.Error{Kind: bmc.KindUnreachable, Err: ctx.Err()}
			}
			return takes(10*time.Millisecond)(ctx, d)
		}
		a := NewActors(y.open)
		before := runtime.NumGoroutine()
		var wait sync.WaitGroup
		for i := range hung {
			d := deviceAt(fmt.Sprint("hung-", i))
			d.Username = "hung"
			for _, open := range []bmc.Opener{a.Urgent(), a.Patient()} {
				p := opened(t, open, d)
				wait.Go(func() {
					for range 3 {
						assert.Error(t, errOf(p.Read(within(t, 5*time.Second))))
					}
					assert.NoError(t, p.Close(t.Context()))
				})
			}
		}
		synctest.Wait()
		for i := range good {
			p := opened(t, a.Urgent(), deviceAt(fmt.Sprint("good-", i)))
			wait.Go(func() {
				for range rounds {
					start := time.Now()
					assert.NoError(t, errOf(p.Read(within(t, 5*time.Second))))
					assert.Equal(t, 10*time.Millisecond, time.Since(start))
				}
				assert.NoError(t, p.Close(t.Context()))
			})
		}
		wait.Wait()
		quiet(t, a)
		assertGoroutines(t, before)
		n, closed := y.sessions()
		assert.Equal(t, []int{hung + good, hung + good}, []int{n, closed})
	})
}

// TestActorsAtRandom: many users of few BMCs at once, some impatient. The fake
// panics when a closed client is used.
func TestActorsAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		rounds := 30
		if dice.Soak() {
			rounds = 1000
		}
		const services = 3
		random := map[string]*rand.Rand{} // by service, of which the actor reads one at a time
		for i := range services {
			host := fmt.Sprint("host-", i)
			random[host] = dice.New(t, host)
		}
		y.read = func(ctx context.Context, d bmc.Device) (bmc.Reading, error) {
			return takes(time.Duration(random[d.Endpoint.Host].Int64N(int64(50*time.Millisecond))))(ctx, d)
		}
		a := NewActors(y.open)
		var wait sync.WaitGroup
		for i := range 60 {
			wait.Go(func() {
				random := dice.New(t, i)
				upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
				for range rounds {
					d := deviceAt(fmt.Sprint("host-", i%services))
					d.Endpoint.System = fmt.Sprint(i % 2)
					open := a.Urgent()
					if i%4 == 0 {
						open = a.Patient()
					}
					p, err := open(d)
					if !assert.NoError(t, err) {
						return
					}
					for range random.IntN(3) {
						_, _ = p.Read(within(t, upTo(200*time.Millisecond)+1))
						_, _ = p.Send(within(t, upTo(200*time.Millisecond)+1), bmc.CommandOn)
					}
					assert.NoError(t, p.Close(within(t, upTo(100*time.Millisecond)+1)))
					time.Sleep(upTo(time.Second))
				}
			})
		}
		wait.Wait()
		quiet(t, a)
		for service, n := range y.most {
			assert.Equal(t, 1, n, "%s was asked by several at once", service)
		}
		n, closed := y.sessions()
		assert.Equal(t, n, closed)
	})
}

// A BMC takes the Off, restarts before it carries it out, and says Off of a chassis that
// it has not looked at yet: the Off is sent again, and what is read after that counts. // I1
func TestOffBeforeARestartOfTheBMCDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := says(bmc.Off)
		s := newSession(bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{{}}}}}, 0, p, ReadTiming{ReadTimeout: time.Second, OffReadSpacing: 3 * time.Second})
		proven := func() bool {
			for range 3 {
				must.Do(s.Read(t.Context()))(t)
				time.Sleep(2 * time.Second)
			}
			return s.Accepted.OffAccepted() && s.Proof.Proven(time.Now())
		}
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.False(t, proven(), "nobody knows in which session it was accepted")
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.True(t, proven())
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		p.reading.Session++
		assert.False(t, proven())
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.True(t, proven())
	})
}

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
