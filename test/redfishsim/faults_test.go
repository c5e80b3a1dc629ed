package redfishsim

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/pace"
)

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
	status, err := c.get(pace.Hang)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
}

func TestAnswerCutInTheMiddle(t *testing.T) {
	sim, c := start(t, Options{})
	sim.Faults(func(f *Faults) { f.CutAnswers = true })
	status, err := c.get(pace.Hang)
	assert.Equal(t, http.StatusOK, status, "the head came")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestRestart(t *testing.T) {
	sim, c := start(t, Options{})
	_, _ = c.do(http.MethodPost, sessionsURI, `{"UserName":"admin","Password":"secret"}`)
	require.Equal(t, 1, sim.OpenSessions())
	pace.Before(t, time.Second, func(down time.Duration) func() {
		before := sim.Connections()
		sim.Restart(down)
		assert.Zero(t, sim.OpenSessions())
		status, err := c.get(pace.Hang)
		require.NoError(t, err)
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
		_, err := c.get(pace.Hang)
		require.NoError(t, err)
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

func TestUnauthorized(t *testing.T) {
	sim, c := start(t, Options{})
	sim.Faults(func(f *Faults) { f.Unauthorized = 1 })
	status, err := c.get(pace.Hang)
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.Equal(t, "On", c.state())
}

func TestEarlyOff(t *testing.T) {
	sim, c := start(t, Options{})
	pace.Before(t, time.Second, func(lag time.Duration) func() {
		require.NoError(t, sim.SetPower(true))
		sim.Quirks(func(q *Quirks) { q.Lag, q.Early = lag, true })
		assert.Equal(t, http.StatusNoContent, c.reset("ForceOff"))
		said, on := c.state(), sim.Power()
		assert.Equal(t, http.StatusNoContent, c.reset("On"), "accepted, and dropped")
		return func() {
			assert.Equal(t, "Off", said)
			assert.True(t, on, "not yet")
		}
	})
	assert.Eventually(t, func() bool { return !sim.Power() }, pace.Tries, 20*time.Millisecond)
	assert.Equal(t, "Off", c.state())
}

func TestOffThenOn(t *testing.T) {
	sim, c := start(t, Options{})
	pace.Before(t, time.Second, func(lie time.Duration) func() {
		sim.Quirks(func(q *Quirks) { q.OffThenOn = lie })
		assert.Equal(t, http.StatusNoContent, c.reset("ForceOff"))
		said := c.state()
		return func() { assert.Equal(t, "Off", said) }
	})
	assert.True(t, sim.Power(), "a lie")
	assert.Eventually(t, func() bool { return c.state() == "On" }, pace.Tries, 20*time.Millisecond)
}

func TestManagerAndInterfaces(t *testing.T) {
	sim, c := start(t, Options{Model: "Super BMC", Firmware: "2.7", Systems: []SystemOptions{{MACs: []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}}}})
	_, system := c.do(http.MethodGet, sim.System(0).URI(), "")
	assert.Equal(t, map[string]any{"ManagedBy": []any{map[string]any{"@odata.id": managerURI}}}, system["Links"])
	_, manager := c.do(http.MethodGet, managerURI, "")
	assert.Equal(t, "Super BMC", manager["Model"])
	assert.Equal(t, "2.7", manager["FirmwareVersion"])
	_, all := c.do(http.MethodGet, sim.System(0).URI()+nicsPath, "")
	assert.Len(t, all["Members"], 2)
	_, second := c.do(http.MethodGet, sim.System(0).URI()+nicsPath+"/2", "")
	assert.Equal(t, "02:00:00:00:00:02", second["MACAddress"])
	resp, _ := c.do(http.MethodGet, sim.System(0).URI()+nicsPath+"/3", "")
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)

	sim.Faults(func(f *Faults) { f.NoManager = true })
	resp, _ = c.do(http.MethodGet, managersURI, "")
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
}

// TestBodies: each fault gives the status and a body that is not whole, and a read that
// succeeds is whole unless that is asked for.
func TestBodies(t *testing.T) {
	for _, fault := range BodyFaults {
		t.Run(string(fault), func(t *testing.T) {
			sim, c := start(t, Options{})
			sim.Faults(func(f *Faults) { f.Body = fault })
			assert.Equal(t, "On", c.state())
			sim.Faults(func(f *Faults) { f.BodyOfReads = true })
			status, err := c.getWhole(500 * time.Millisecond)
			assert.Equal(t, http.StatusOK, status)
			assert.Error(t, err)
		})
	}
}

// getWhole gets the system within d. The error is that of a body that is not JSON.
func (c caller) getWhole(d time.Duration) (status int, err error) {
	c.t.Helper()
	pace.Until(c.t, "a status", func() bool { // on a busy machine none may come within d
		ctx, cancel := context.WithTimeout(c.t.Context(), d)
		defer cancel()
		req, reqErr := http.NewRequestWithContext(ctx, http.MethodGet, c.sim.URL()+c.sim.System(0).URI(), nil)
		require.NoError(c.t, reqErr)
		req.SetBasicAuth("admin", "secret")
		resp, doErr := c.http.Do(req)
		if doErr != nil {
			return false
		}
		defer resp.Body.Close()
		status, err = resp.StatusCode, json.NewDecoder(resp.Body).Decode(&struct{}{})
		return true
	})
	return status, err
}

// TestCloseSilently ends each connection after an answer that announces nothing.
func TestCloseSilently(t *testing.T) {
	sim, c := start(t, Options{})
	sim.Faults(func(f *Faults) { f.CloseSilently = true })
	for range 3 {
		before := sim.Connections()
		resp, err := c.http.Get(sim.URL() + rootURI)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.False(t, resp.Close)
		assert.LessOrEqual(t, sim.Connections()-before, 2, "and one that was found dead")
		assert.Greater(t, sim.Connections(), before)
	}
}
