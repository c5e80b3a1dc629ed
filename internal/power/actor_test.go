package power

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/must"
	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

func opened(t *testing.T, open bmc.Opener, d bmc.Device) bmc.Power {
	t.Helper()
	return must.Do(open(d))(t)
}

// within is a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// quiet waits until nothing of a is left, and asserts that it comes to that.
func quiet(t *testing.T, a *Actors) {
	t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.Empty(t, a.services, "a service without users is forgotten")
}

func TestActorsAskAServiceOneAtATime(t *testing.T) {
	inYard(t, time.Second, func(t *testing.T, y *yard, a *Actors) {
		var devices []bmc.Device
		for _, system := range []string{"/redfish/v1/Systems/1", "/redfish/v1/Systems/2", "/redfish/v1/Systems/3"} {
			for _, host := range []string{"a", "b"} {
				d := deviceAt(host)
				d.Endpoint.System = system
				devices = append(devices, d)
			}
		}
		start := time.Now()
		var wait sync.WaitGroup
		for _, d := range devices {
			p := opened(t, a.Urgent(), d)
			wait.Go(func() {
				r, err := p.Read(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, time.Second, r.Took, "the wait for its turn is not the BMC's time")
				assert.NoError(t, p.Close(t.Context()))
			})
		}
		wait.Wait()
		assert.Equal(t, 3*time.Second, time.Since(start), "three systems in turn, two services side by side")
		assert.Equal(t, map[string]int{"a": 1, "b": 1}, y.most)
		quiet(t, a)
	})
}

func TestActorsShareAClient(t *testing.T) {
	inYard(t, 0, func(t *testing.T, y *yard, a *Actors) {
		run, person, sweep := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Patient(), deviceAt("a"))
		first := must.Do(run.Read(t.Context()))(t)
		for _, p := range []bmc.Power{person, sweep, run} {
			r := must.Do(p.Read(t.Context()))(t)
			assert.Equal(t, first.Session, r.Session, "one session for all")
			assert.NotZero(t, r.Session)
		}
		require.NoError(t, run.Close(t.Context()))
		require.NoError(t, run.Close(t.Context()), "more than once is nothing")
		require.NoError(t, person.Close(t.Context()))
		_, closed := y.sessions()
		assert.Zero(t, closed, "the sweep still uses it")
		require.NoError(t, sweep.Close(t.Context()))
		openedNow, closed := y.sessions()
		assert.Equal(t, []int{1, 1}, []int{openedNow, closed})

		again := opened(t, a.Urgent(), deviceAt("a"))
		r := must.Do(again.Read(t.Context()))(t)
		assert.NotEqual(t, first.Session, r.Session, "a new client, so a new proof") // I1
		require.NoError(t, again.Close(t.Context()))
		quiet(t, a)
	})
}

// TestActorsNewClient: whatever changes how a device is reached, trusted or
// logged in to gives a client of its own, asked in turn with the old one.
func TestActorsNewClient(t *testing.T) {
	for name, change := range map[string]func(*bmc.Device){
		"password":   func(d *bmc.Device) { d.Password = bmc.NewSecret("other") },
		"user":       func(d *bmc.Device) { d.Username = "other" },
		"driver":     func(d *bmc.Device) { d.Driver = bmc.DriverBMCLib },
		"provider":   func(d *bmc.Device) { d.Provider = "gofish" },
		"pin":        func(d *bmc.Device) { d.TLS.PinSHA256 = "aa" },
		"CA":         func(d *bmc.Device) { d.TLS.CA = "/ca.pem" },
		"BMC key":    func(d *bmc.Device) { d.BMCKey = bmc.NewSecret("other") },
		"suites":     func(d *bmc.Device) { d.CipherSuites = []int{17} },
		"privilege":  func(d *bmc.Device) { d.Endpoint.Privilege = "ADMINISTRATOR" },
		"system":     func(d *bmc.Device) { d.Endpoint.System = "/redfish/v1/Systems/2" },
		"UUID":       func(d *bmc.Device) { d.SystemUUID = hostUUID },
		"parameters": func(d *bmc.Device) { d.Parameters = map[string]string{"plug": "2"} },
		"secrets":    func(d *bmc.Device) { d.SecretParameters = map[string]bmc.Secret{"community": bmc.NewSecret("other")} },
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard()
			a := NewActors(y.open)
			changed := deviceAt("a")
			change(&changed)
			p, q := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), changed)
			same := opened(t, a.Urgent(), deviceAt("a"))
			n, _ := y.sessions()
			assert.Equal(t, 2, n)
			assert.Same(t, p.(*handle).service, q.(*handle).service)
			assert.Same(t, p.(*handle).client, same.(*handle).client, "the Kubernetes Secret's name and the like do not matter")
		})
	}
}

func TestActorsOpenErrors(t *testing.T) {
	y := newYard()
	a := NewActors(y.open)
	y.fail = errors.New("no such CA file")
	_, err := a.Urgent()(deviceAt("a"))
	require.EqualError(t, err, "no such CA file")
	assert.Empty(t, a.services)
	opened(t, a.Urgent(), deviceAt("a")) // the next user tries again

	d := deviceAt("b")
	d.Unusable = errors.New("no password file")
	_, err = a.Patient()(d)
	require.EqualError(t, err, "no password file")
	n, _ := y.sessions()
	assert.Equal(t, 1, n)
}

func TestActorsForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		plain := NewActors(y.open)
		p := opened(t, plain.Urgent(), deviceAt("a"))
		_, err := p.(bmc.Describer).Describe(t.Context())
		assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
		_, err = p.(bmc.Auditor).Audit(t.Context())
		assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))

		rich := NewActors(func(d bmc.Device) (bmc.Power, error) {
			p, err := y.open(d)
			return &talking{p.(*fakePower), func(context.Context) (bmc.Description, error) { return bmc.Description{Model: "X"}, nil }}, err
		})
		p = opened(t, rich.Patient(), deviceAt("b"))
		d := must.Do(p.(bmc.Describer).Describe(t.Context()))(t)
		assert.Equal(t, "X", d.Model)
		f := must.Do(p.(bmc.Auditor).Audit(t.Context()))(t)
		assert.Equal(t, []bmc.Finding{{Code: bmc.FindingClock}}, f)
	})
}

func TestUsedAfterClose(t *testing.T) {
	inYard(t, 10*time.Second, func(t *testing.T, y *yard, a *Actors) {
		p, other := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a"))
		go func() { _, _ = other.Read(t.Context()) }() // keeps the client busy, and open
		synctest.Wait()
		waiting := make(chan error)
		go func() {
			_, err := p.Send(t.Context(), bmc.CommandOff)
			waiting <- err
		}()
		synctest.Wait()
		require.NoError(t, p.Close(t.Context()))
		for _, err := range []error{<-waiting, errOf(p.Read(t.Context())), errOf(p.Send(t.Context(), bmc.CommandOff))} {
			refused(t, err, bmc.KindUnsupported)
		}
		require.NoError(t, other.Close(within(t, time.Minute)))
		quiet(t, a)
		assert.NotContains(t, y.did(), "send off a", "what waited when its user left is not done later")
	})
}

func errOf[T any](_ T, err error) error { return err }

// TestPatientUsersOnlyRead: no command of theirs is sent, and whatever the actor says itself shows no
// secret. // I25
func TestPatientUsersOnlyRead(t *testing.T) {
	y := newYard()
	p := opened(t, NewActors(y.open).Patient(), deviceAt("a"))
	_, err := p.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
	assert.Empty(t, y.did(), "nothing was sent")
	assert.NotContains(t, err.Error(), canary)
	require.NoError(t, p.Close(t.Context()))
	_, err = p.Read(t.Context())
	assert.NotContains(t, err.Error(), canary)
	assert.Contains(t, err.Error(), "read power state of ipmi://a:623")
}

func TestUrgentGoesFirst(t *testing.T) {
	inYard(t, 10*time.Second, func(t *testing.T, y *yard, a *Actors) {
		sweep, run := opened(t, a.Patient(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a"))
		swept := make(chan error)
		go func() { swept <- errOf(sweep.Read(t.Context())) }()
		time.Sleep(time.Second)
		start := time.Now()
		must.Do(run.Send(t.Context(), bmc.CommandOff))(t)
		assert.Zero(t, time.Since(start), "the sweep's read was cancelled")
		err := <-swept
		assert.ErrorIs(t, err, ErrInUse)
		assert.Equal(t, bmc.KindBusy, bmc.KindOf(err))
		assert.Equal(t, []string{"read a", "send off a"}, y.did())
	})
}

func TestUrgentOnesInOrder(t *testing.T) {
	inYard(t, time.Second, func(t *testing.T, y *yard, a *Actors) {
		var wait sync.WaitGroup
		order := make(chan int, 5)
		for i := range 5 {
			d := deviceAt("a")
			d.Endpoint.System = fmt.Sprint(i)
			p := opened(t, a.Urgent(), d)
			wait.Go(func() {
				assert.NoError(t, errOf(p.Read(t.Context())))
				order <- i
			})
			synctest.Wait()
		}
		wait.Wait()
		for i := range 5 {
			assert.Equal(t, i, <-order)
		}
	})
}

// TestDescribeGivesWay: nobody's curiosity delays a run, and what is asked after
// is asked again.
func TestDescribeGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		a := NewActors(func(d bmc.Device) (bmc.Power, error) {
			p, err := y.open(d)
			return &talking{p.(*fakePower), func(ctx context.Context) (bmc.Description, error) { return bmc.Description{}, pause(ctx, time.Minute) }}, err
		})
		person, run := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a"))
		told := make(chan error)
		go func() { told <- errOf(person.(bmc.Describer).Describe(t.Context())) }()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, errOf(run.Read(t.Context())))
		assert.Zero(t, time.Since(start))
		assert.ErrorIs(t, <-told, ErrInUse)
	})
}

func TestWaiterLeaves(t *testing.T) {
	inYard(t, 10*time.Second, func(t *testing.T, y *yard, a *Actors) {
		p, q := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a"))
		reading := make(chan error)
		go func() { reading <- errOf(p.Read(t.Context())) }()
		synctest.Wait()
		start := time.Now()
		_, err := q.Send(within(t, time.Second), bmc.CommandOff)
		assert.Equal(t, time.Second, time.Since(start))
		refused(t, err, bmc.KindBusy)
		assert.ErrorIs(t, err, ErrInUse)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Contains(t, err.Error(), "read power state", "it says what is in the way")
		require.NoError(t, <-reading)
		synctest.Wait()
		assert.Equal(t, []string{"read a"}, y.did(), "a command whose caller left is never sent")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = q.Send(ended, bmc.CommandOff)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Len(t, y.did(), 1)
	})
}

func TestPatientWaitsForQuiet(t *testing.T) {
	inYard(t, 0, func(t *testing.T, y *yard, a *Actors) {
		run, sweep := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Patient(), deviceAt("a"))
		other := opened(t, a.Patient(), deviceAt("a"))
		took := func(p bmc.Power) time.Duration {
			start := time.Now()
			require.NoError(t, errOf(p.Read(t.Context())))
			return time.Since(start)
		}
		assert.Zero(t, took(sweep), "nobody used it yet")
		assert.Zero(t, took(sweep), "one visit asks all it wants")
		assert.Equal(t, time.Second, took(other), "another sweep comes later")
		assert.Zero(t, took(run), "a run never waits for quiet")
		assert.Zero(t, took(run))
		assert.Equal(t, 5*time.Second, took(sweep), "a run that polls is left alone")
		assert.Equal(t, time.Second, took(other))

		assert.Zero(t, took(run))
		start := time.Now()
		_, err := sweep.Read(within(t, 3*time.Second))
		assert.ErrorIs(t, err, ErrInUse, "which says nothing against the BMC")
		assert.Equal(t, 3*time.Second, time.Since(start))
		for _, p := range []bmc.Power{run, sweep, other} {
			require.NoError(t, p.Close(t.Context()))
		}
		quiet(t, a)
	})
}

// A run and the sweep share a client. What the sweep saw at the address is not what
// the run decided about. // I8
func TestCommandIsForWhomItsUserSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, who := newYard(), "a"
		y.read = func(context.Context, bmc.Device) (bmc.Reading, error) {
			return bmc.Reading{State: bmc.On, At: time.Now(), Identity: bmc.Identity{UUID: who}}, nil
		}
		a := NewActors(y.open)
		run, sweep := opened(t, a.Urgent(), deviceAt("x")), opened(t, a.Patient(), deviceAt("x"))
		read := func(p bmc.Power, want string) {
			t.Helper()
			r := must.Do(p.Read(within(t, time.Minute)))(t)
			require.Equal(t, want, r.Identity.UUID)
		}
		send := func() error { return errOf(run.Send(t.Context(), bmc.CommandOff)) }
		read(run, "a")
		read(sweep, "a")
		require.NoError(t, send(), "all saw the same")

		who = "b"
		read(sweep, "b")
		for range 2 {
			refused(t, send(), bmc.KindIdentity)
		}
		read(run, "b")
		require.NoError(t, send(), "its user knows by now whom")

		who = "c"
		y.read = func(context.Context, bmc.Device) (bmc.Reading, error) {
			return bmc.Reading{Identity: bmc.Identity{UUID: who}}, errors.New("torn")
		}
		require.Error(t, errOf(run.Read(t.Context())))
		require.NoError(t, send(), "what comes with an error says nothing")
		require.NoError(t, run.Close(t.Context()))
		require.NoError(t, sweep.Close(t.Context()))
		quiet(t, a)
	})
}

// frozen is the ctx of a process that was frozen: its time is over, and nothing has noticed that yet.
type frozen struct {
	context.Context
	over time.Time
}

func (f frozen) Deadline() (time.Time, bool) { return f.over, true }

// An answer that waited while the process was frozen looks new, and tells what was so before. // I1
func TestAnswerFromBeforeAFreezeIsNoReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		a := NewActors(y.open)
		var freeze time.Duration
		y.read = func(context.Context, bmc.Device) (bmc.Reading, error) {
			time.Sleep(freeze)
			return bmc.Reading{State: bmc.Off, At: time.Now(), Session: 1}, nil
		}
		s := must.Do(Open(a.Urgent(), bmc.Host{Name: "c/n", Levels: []bmc.Level{{Devices: []bmc.Device{deviceAt("a")}}}}, 0,
			ReadTiming{ReadTimeout: 5 * time.Second, OffReadSpacing: 3 * time.Second}))(t)
		read := func() error {
			_, err := s.Read(frozen{t.Context(), time.Now().Add(4 * time.Second)}) // less than its own time, which would be noticed
			return err
		}
		require.NoError(t, read())
		time.Sleep(3 * time.Second)
		freeze = time.Minute
		require.Equal(t, bmc.KindUnreachable, bmc.KindOf(read()))
		assert.False(t, s.Proof.Proven(time.Now()))
		alone := must.Do(a.Urgent()(deviceAt("a")))(t)
		late, err := alone.Read(frozen{t.Context(), time.Now().Add(4 * time.Second)})
		require.Error(t, err)
		assert.Equal(t, bmc.Reading{Took: freeze}, late, "nor to whoever looks at it beside the error, as what ends an enrolment does")
		require.NoError(t, alone.Close(t.Context()))
		freeze = 0
		require.NoError(t, read())
		assert.False(t, s.Proof.Proven(time.Now()), "what was read before the freeze is no part of a proof after it")
		time.Sleep(3 * time.Second)
		require.NoError(t, read())
		assert.True(t, s.Proof.Proven(time.Now()))
		s.Close(t.Context())
		quiet(t, a)
	})
}
