package redfishsim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// caller is a plain HTTP client of one service, with Basic authentication.
type caller struct {
	t    *testing.T
	sim  *Server
	http *http.Client
}

func start(t *testing.T, o Options) (*Server, caller) {
	t.Helper()
	sim := must.Do(Start(o))(t)
	t.Cleanup(sim.Stop)
	ca := must.Do(os.ReadFile(sim.CAFile()))(t)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return sim, caller{t: t, sim: sim, http: &http.Client{Transport: tr, Timeout: 10 * pace.Hang}}
}

func (c caller) do(method, path, body string) (*http.Response, map[string]any) {
	c.t.Helper()
	req := must.Do(http.NewRequest(method, c.sim.URL()+path, strings.NewReader(body)))(c.t)
	req.SetBasicAuth("admin", "secret")
	resp := must.Do(c.http.Do(req))(c.t)
	defer resp.Body.Close()
	var v map[string]any
	if resp.StatusCode != http.StatusNoContent {
		require.NoError(c.t, json.NewDecoder(resp.Body).Decode(&v))
	}
	return resp, v
}

func (c caller) state() any {
	_, v := c.do(http.MethodGet, c.sim.System(0).URI(), "")
	return v["PowerState"]
}

func (c caller) reset(kind string) int {
	resp, _ := c.do(http.MethodPost, c.sim.System(0).URI()+resetPath, `{"ResetType":"`+kind+`"}`)
	return resp.StatusCode
}

func TestResetSwitchesTheHost(t *testing.T) {
	sim, c := start(t, Options{})
	assert.Equal(t, "On", c.state())
	assert.Equal(t, http.StatusNoContent, c.reset("ForceOff"))
	assert.False(t, sim.Power())
	assert.Equal(t, "Off", c.state())
	assert.Equal(t, http.StatusNoContent, c.reset("On"))
	assert.True(t, sim.Power())
	assert.Equal(t, http.StatusBadRequest, c.reset("PushPowerButton"))
	assert.Equal(t, []bool{false, true}, sim.System(0).Commands())
	assert.Equal(t, 2, sim.Count(http.MethodGet, sim.System(0).URI()))
}

func TestLieOff(t *testing.T) {
	sim, c := start(t, Options{})

	require.NoError(t, sim.LieOff(true))
	assert.Equal(t, "Off", c.state())
	assert.True(t, sim.Power())
	require.NoError(t, sim.LieOff(false))

	assert.Equal(t, "On", c.state())
}

func TestStopIsFinalAndRepeatable(t *testing.T) {
	sim, c := start(t, Options{})
	sim.Stop()
	sim.Stop()
	_, err := c.http.Get(sim.URL() + rootURI)
	require.Error(t, err)
	assert.NoFileExists(t, sim.CAFile())
}

// get asks for the system within d, and gives the error of the exchange.
func (c caller) get(d time.Duration) (status int, err error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), d)
	defer cancel()
	return c.getIn(ctx)
}

// getUntil gives up when something has happened.
func (c caller) getUntil(happened func() bool) (status int, err error) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil && !happened() {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	return c.getIn(ctx)
}

func (c caller) getIn(ctx context.Context) (status int, err error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.sim.URL()+c.sim.System(0).URI(), nil)
	require.NoError(c.t, err)
	req.SetBasicAuth("admin", "secret")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return resp.StatusCode, err
}

func TestHalfOpen(t *testing.T) {
	sim, c := start(t, Options{})
	assert.Equal(t, "On", c.state())
	sim.Faults(func(f *Faults) { f.HalfOpen = true })
	_, err := c.get(100 * time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded, "on a connection that exists")

	raw, err := net.Dial("tcp", sim.Addr())
	require.NoError(t, err, "the kernel accepts")
	defer raw.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, tls.Client(raw, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx), context.DeadlineExceeded)
}

func TestHangAfterTLS(t *testing.T) {
	sim, c := start(t, Options{})
	sim.Faults(func(f *Faults) { f.Hang = true })
	_, err := c.getUntil(func() bool { return len(sim.Requests()) > 0 })
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, sim.Connections(), "TLS stands")
	assert.Len(t, sim.Requests(), 1, "the request arrived")
	sim.Faults(func(f *Faults) { f.Hang = false })
	status := must.Do(c.get(pace.Hang))(t)
	assert.Equal(t, http.StatusOK, status)
}

func TestRestart(t *testing.T) {
	sim, c := start(t, Options{})
	_, _ = c.do(http.MethodPost, sessionsURI, `{"UserName":"admin","Password":"secret"}`)
	require.Equal(t, 1, sim.OpenSessions())
	pace.Before(t, time.Second, func(down time.Duration) func() {
		before := sim.Connections()
		sim.Restart(down)
		assert.Zero(t, sim.OpenSessions())
		status := must.Do(c.get(pace.Hang))(t)
		return func() {
			assert.Equal(t, http.StatusServiceUnavailable, status)
			assert.Equal(t, before+1, sim.Connections(), "the first was cut")
		}
	})
	assert.Eventually(t, func() bool {
		status, err := c.get(pace.Hang)
		return err == nil && status == http.StatusOK
	}, pace.Tries, 20*time.Millisecond)

	sim.Faults(func(f *Faults) { f.KeepSessions = true })
	_, _ = c.do(http.MethodPost, sessionsURI, `{"UserName":"admin","Password":"secret"}`)
	sim.Restart(0)
	assert.Equal(t, 1, sim.OpenSessions())
}

// A cold request over TLS 1.3 takes three round trips, a warm one takes one.
func TestRoundTripTime(t *testing.T) {
	const rtt = 100 * time.Millisecond
	sim, c := start(t, Options{})
	sim.Faults(func(f *Faults) { f.RTT = rtt })
	ask := func() {
		must.Do(c.get(pace.Hang))(t)
	}
	pace.Lasts(t, 3*rtt, rtt, func() {
		c.http.CloseIdleConnections()
		ask()
	})
	pace.Lasts(t, rtt, rtt, ask)
}

func TestStopEndsWhatHangs(t *testing.T) {
	sim, c := start(t, Options{})
	sim.Faults(func(f *Faults) { f.Hang, f.RTT = true, 10*time.Millisecond })
	done := make(chan error)
	go func() {
		_, err := c.get(10 * pace.Hang)
		done <- err
	}()
	require.Eventually(t, func() bool { return len(sim.Requests()) == 1 }, time.Minute, 5*time.Millisecond)
	sim.Stop()
	select {
	case err := <-done:
		require.Error(t, err)
		assert.False(t, errors.Is(err, context.DeadlineExceeded))
	case <-time.After(pace.Hang):
		t.Fatal("the connection outlives the service")
	}
}
