package power

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time

	"github.com/fenced/fenced/internal/bmc"
)

// opened opens d or fails the test.
func opened(t *testing.T, open bmc.Opener, d bmc.Device) bmc.Power {
	t.Helper()
	p, err := open(d)
	require.NoError(t, err)
	return p
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
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.read = takes(time.Second)
		a := NewActors(y.open)
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
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		a := NewActors(y.open)
		run, person, sweep := opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Urgent(), deviceAt("a")), opened(t, a.Patient(), deviceAt("a"))
		first, err := run.Read(t.Context())
		require.NoError(t, err)
		for _, p := range []bmc.Power{person, sweep, run} {
			r, err := p.Read(t.Context())
			require.NoError(t, err)
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
		r, err := again.Read(t.Context())
		require.NoError(t, err)
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
		d, err := p.(bmc.Describer).Describe(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "X", d.Model)
		f, err := p.(bmc.Auditor).Audit(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []bmc.Finding{{Code: bmc.FindingClock}}, f)
	})
}

func TestPatientUsersOnlyRead(t *testing.T) {
	y := newYard()
	p := opened(t, NewActors(y.open).Patient(), deviceAt("a"))
	_, err := p.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
	assert.Empty(t, y.did(), "nothing was sent")
}

func TestUsedAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		y.read = takes(10 * time.Second)
		a := NewActors(y.open)
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
			e, ok := errors.AsType[*bmc.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, bmc.KindUnsupported, e.Kind)
			assert.Equal(t, bmc.SentNo, e.Sent)
		}
		require.NoError(t, other.Close(within(t, time.Minute)))
		quiet(t, a)
		assert.NotContains(t, y.did(), "send off a", "what waited when its user left is not done later")
	})
}

func errOf[T any](_ T, err error) error { return err }

// TestActorErrorsShowNoSecret: whatever the actor says itself. // I25
func TestActorErrorsShowNoSecret(t *testing.T) {
	y := newYard()
	a := NewActors(y.open)
	p := opened(t, a.Patient(), deviceAt("a"))
	_, err := p.Send(t.Context(), bmc.CommandOff)
	assert.NotContains(t, err.Error(), canary)
	require.NoError(t, p.Close(t.Context()))
	_, err = p.Read(t.Context())
	assert.NotContains(t, err.Error(), canary)
	assert.Contains(t, err.Error(), "read power state of ipmi://a:623")
}
