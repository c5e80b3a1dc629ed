package redfish_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
)

// A command whose answer is lost may have been carried out.
func TestLostAnswerIsSentMaybe(t *testing.T) {
	for name, tc := range map[string]struct {
		quirks redfishsim.Quirks
		warm   bool
	}{
		"connection cut": {redfishsim.Quirks{DropReset: true}, true},
		"cut, cold":      {redfishsim.Quirks{DropReset: true}, false},
		"no answer":      {redfishsim.Quirks{HangReset: time.Hour}, true},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, redfishsim.Options{})
			c := open(t, hostOf(t, sim), timing)
			var session uint64
			if tc.warm {
				session = bmctest.Read(t, c).Session
			}
			sim.Quirks(func(q *redfishsim.Quirks) { *q = tc.quirks })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { // the caller waits until the command has arrived, and a moment more
				for len(sim.System(0).Commands()) == 0 && ctx.Err() == nil {
					time.Sleep(5 * time.Millisecond)
				}
				time.Sleep(500 * time.Millisecond)
				cancel()
			}()
			_, err := c.Send(ctx, bmc.CommandOff)
			e := bmctest.Failed(t, err, bmc.KindUnreachable)
			assert.Equal(t, bmc.SentMaybe, e.Sent)
			assert.Len(t, sim.System(0).Commands(), 1, "sent once: the reader decides what follows")
			r := bmctest.Read(t, c)
			assert.Equal(t, bmc.Off, r.State)
			assert.NotEqual(t, session, r.Session, "a broken connection may be a restart")
		})
	}
}

func TestNobodyListens(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	h := hostOf(t, sim)
	h.Endpoint.Host, h.Endpoint.Port = closedPort(t)
	c := open(t, h, timing)
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindRefused)
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindRefused).Sent)
}

func TestSilentBMC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, never answers
	require.NoError(t, err)
	defer l.Close()
	sim := start(t, redfishsim.Options{})
	h := hostOf(t, sim)
	h.Endpoint.Port = l.Addr().(*net.TCPAddr).Port
	tm := timing
	tm.ReadTimeout = 200 * time.Millisecond
	c := open(t, h, tm)

	_, err = c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindUnreachable)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Read(ctx)
	bmctest.Failed(t, err, bmc.KindUnreachable)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestBusyIsAskedAgain(t *testing.T) {
	sim, c := one(t)
	first := bmctest.Read(t, c)
	before := c.Requests()
	sim.Faults(func(f *redfishsim.Faults) { f.Busy = 2 })
	r := bmctest.Read(t, c)
	assert.Equal(t, bmc.On, r.State)
	assert.Equal(t, 3, c.Requests()-before)
	assert.NotEqual(t, first.Session, r.Session, "503 may be a restart: the proof starts again")

	sim.Faults(func(f *redfishsim.Faults) { f.Busy, f.RetryAfter = 1, "1" })
	began := time.Now()
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), time.Second, "Retry-After is honoured")
	assert.Len(t, sim.System(0).Commands(), 1)
}

func TestBusyForTooLong(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	tm := timing
	tm.ReadTimeout = 5 * time.Second // as long as any Retry-After is followed
	c := open(t, hostOf(t, sim), tm)
	sim.Faults(func(f *redfishsim.Faults) { f.Busy, f.RetryAfter = 1000, "3600" })
	var err error
	pace.Until(t, "busy, and no wait for longer than there is time", func() bool {
		began := time.Now()
		_, err = c.Read(t.Context())
		return time.Since(began) < tm.ReadTimeout-time.Second && bmctest.Failed(t, err, bmc.KindBusy) != nil
	})
	assert.Contains(t, err.Error(), "The service is starting.")
	sim.Faults(func(f *redfishsim.Faults) { f.Busy = 0 })
	assert.Equal(t, bmc.On, bmctest.Read(t, open(t, hostOf(t, sim), timing)).State)
}

// 429 is no restart: the proof goes on.
func TestTooManyRequests(t *testing.T) {
	var refuse atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			w.Header().Set("X-Auth-Token", "token")
			w.WriteHeader(http.StatusCreated)
		case refuse.Add(-1) >= 0:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			_, _ = w.Write([]byte(`{"PowerState":"Off"}`))
		}
	}))
	defer srv.Close()
	e, err := bmc.ParseEndpoint("redfish+http://" + strings.TrimPrefix(srv.URL, "http://") + "/redfish/v1/Systems/1")
	require.NoError(t, err)
	c := open(t, bmc.Device{Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret")}, timing)
	first := bmctest.Read(t, c)
	refuse.Store(1)
	began := time.Now()
	assert.Equal(t, first.Session, bmctest.Read(t, c).Session)
	assert.GreaterOrEqual(t, time.Since(began), time.Second, "Retry-After is honoured")
}
