package redfish_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
)

// A command whose answer is lost may have been carried out.
func TestLostAnswerIsSentMaybe(t *testing.T) {
	t.Parallel()
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
	l := must.Do(net.Listen("tcp", "127.0.0.1:0"))(t) // accepts in the kernel, never answers
	defer l.Close()
	sim := start(t, redfishsim.Options{})
	h := hostOf(t, sim)
	h.Endpoint.Port = l.Addr().(*net.TCPAddr).Port
	tm := timing
	tm.ReadTimeout = 200 * time.Millisecond
	c := open(t, h, tm)

	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindUnreachable)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Read(ctx)
	bmctest.Failed(t, err, bmc.KindUnreachable)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestBusyIsAskedAgain(t *testing.T) {
	t.Parallel()
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
	bmctest.Send(t, c, bmc.CommandOff)
	assert.GreaterOrEqual(t, time.Since(began), time.Second, "Retry-After is honoured")
	assert.Len(t, sim.System(0).Commands(), 1)
}

func TestBusyForTooLong(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	sim, c := one(t)
	first := bmctest.Read(t, c)
	sim.Faults(func(f *redfishsim.Faults) { f.Busy, f.BusyAs, f.RetryAfter = 1, http.StatusTooManyRequests, "1" })
	began := time.Now()
	assert.Equal(t, first.Session, bmctest.Read(t, c).Session)
	assert.GreaterOrEqual(t, time.Since(began), time.Second, "Retry-After is honoured")
}

// I1: readings from before and after a restart of the BMC never support one proof.
func TestRestartChangesTheSession(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		faults redfishsim.Faults
		down   time.Duration
	}{
		"sessions forgotten":        {redfishsim.Faults{}, 0},
		"sessions forgotten, 503":   {redfishsim.Faults{}, time.Second},
		"sessions kept, 503":        {redfishsim.Faults{KeepSessions: true}, time.Second},
		"Basic, 503":                {redfishsim.Faults{NoSessions: true}, time.Second},
		"Basic, and back at once":   {redfishsim.Faults{NoSessions: true}, 0},
		"no room, and back at once": {redfishsim.Faults{LoginStatus: http.StatusServiceUnavailable}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, redfishsim.Options{Off: true})
			sim.Faults(func(f *redfishsim.Faults) { *f = tc.faults })
			c := open(t, hostOf(t, sim), timing)
			proof := bmc.Proof{Spacing: time.Nanosecond, MaxAge: time.Minute}
			assert.Equal(t, bmctest.Read(t, c).Session, bmctest.Read(t, c).Session)
			before, after := restarted(t, sim, c, tc.down)
			assert.NotEqual(t, before.Session, after.Session)
			assert.False(t, proof.Add(before).Add(after).Proven(time.Now()))
			after = bmctest.Read(t, c) // where there is no room, a login is tried again, and its 503 is one more sign
			again := bmctest.Read(t, c)
			assert.Equal(t, after.Session, again.Session, "and then is stable")
			assert.True(t, proof.Add(after).Add(again).Proven(time.Now()))
		})
	}
}

// restarted restarts the BMC between two readings. If it is down for a while, a request must
// meet that, which on a busy machine may need another try.
func restarted(t *testing.T, sim *redfishsim.Server, c *redfish.Client, down time.Duration) (before, after bmc.Reading) {
	t.Helper()
	pace.Until(t, "a request while the BMC starts", func() bool {
		before = bmctest.Read(t, c)
		sim.ResetRequests()
		at := time.Now()
		sim.Restart(down)
		after = bmctest.Read(t, c)
		return down == 0 || sim.Requests()[0].At.Before(at.Add(down*2/3))
	})
	return before, after
}

// A service that ends each connection must still be provable off.
func TestConnectionPerAnswerIsNoRestart(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]redfishsim.Faults{
		"session": {CloseConnections: true},
		"Basic":   {CloseConnections: true, NoSessions: true},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			sim.Faults(func(f *redfishsim.Faults) { *f = faults })
			pace.Until(t, "one session", func() bool { // on a busy machine there is enough time for a restart
				first := bmctest.Read(t, c)
				before := sim.Connections()
				second := bmctest.Read(t, c)
				assert.Greater(t, sim.Connections(), before)
				return first.Session == second.Session
			})
		})
	}
}

// The network and the BMC fail in ways that are neither an answer nor a refusal.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*redfishsim.Faults){
		"half-open TCP":     func(f *redfishsim.Faults) { f.HalfOpen = true },
		"hang after TLS":    func(f *redfishsim.Faults) { f.Hang = true },
		"cut in mid-answer": func(f *redfishsim.Faults) { f.CutAnswers = true },
	} {
		for _, warm := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, warm %t", name, warm), func(t *testing.T) {
				var sim *redfishsim.Server
				var c *redfish.Client
				pace.Until(t, "another session", func() bool { // a busy machine may not even send within the time
					sim = start(t, redfishsim.Options{})
					c = open(t, hostOf(t, sim), timing)
					var session uint64
					if warm {
						session = bmctest.Read(t, c).Session
					}
					sim.Faults(fault)
					short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					r, err := c.Read(short)
					bmctest.Failed(t, err, bmc.KindUnreachable)
					assert.Equal(t, bmc.Reading{}, r)
					sim.Faults(func(f *redfishsim.Faults) { *f = redfishsim.Faults{} })
					r = bmctest.Read(t, c)
					assert.Equal(t, bmc.On, r.State)
					return session != r.Session
				})
				require.NoError(t, c.Close(t.Context()))
				assert.Eventually(t, func() bool { return name == "cut in mid-answer" || sim.OpenSessions() == 0 }, time.Minute, 10*time.Millisecond)
			})
		}
	}
}

// proveOff does what a run does: it sends Off until one accepted Off and two readings
// after it belong to one session. // I1
func proveOff(t *testing.T, c *redfish.Client) {
	t.Helper()
	proof := bmc.Proof{Spacing: time.Nanosecond, MaxAge: time.Minute}
	var accepted bmc.Acceptance
	pace.Until(t, "an accepted off and its proof", func() bool {
		r, err := c.Read(t.Context())
		if err != nil {
			t.Log(err)
			proof = proof.Reset()
			return false
		}
		accepted = accepted.AddReading(r)
		if !accepted.OffAccepted() {
			proof = proof.Reset()
			_, err := c.Send(t.Context(), bmc.CommandOff)
			accepted = accepted.AddCommand(bmc.CommandOff, err)
			return false
		}
		proof = proof.Add(r)
		return proof.Proven(time.Now())
	})
}

// TestSilentEndsOfConnections: a service that ends each connection without a word is
// provable off with Basic authentication, and obeys. It seems to restart once.
func TestSilentEndsOfConnections(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]redfishsim.Faults{
		"session":            {CloseSilently: true},
		"Basic":              {CloseSilently: true, NoSessions: true},
		"no room, and Basic": {CloseSilently: true, LoginStatus: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, redfishsim.Options{UUID: uuid1})
			sim.Faults(func(f *redfishsim.Faults) { *f = faults })
			pace.Until(t, "two readings of one session, after two", func() bool { // on a busy machine there is time for a restart, and a read may meet the end of its connection
				c := open(t, hostOf(t, sim), timing)
				var sessions []uint64
				var connections []int
				for range 4 {
					r, err := c.Read(t.Context())
					if err != nil {
						t.Log(err)
						return false
					}
					sessions, connections = append(sessions, r.Session), append(connections, sim.Connections())
				}
				assert.Greater(t, connections[3], connections[2])
				return sessions[2] == sessions[3]
			})
			proveOff(t, open(t, hostOf(t, sim), timing))
			assert.False(t, sim.Power())
			pace.Until(t, "on", func() bool { // a command may meet the end of its connection
				_, err := open(t, hostOf(t, sim), timing).Send(t.Context(), bmc.CommandOn)
				t.Log(err)
				return err == nil
			})
			assert.True(t, sim.Power())
		})
	}
}

// A restart of such a service is seen where there is a sign of it. // I1
func TestRestartBetweenSilentEnds(t *testing.T) {
	t.Parallel()
	sim := start(t, redfishsim.Options{UUID: uuid1, Off: true})
	sim.Faults(func(f *redfishsim.Faults) { f.CloseSilently, f.NoSessions = true, true })
	c := open(t, hostOf(t, sim), timing)
	for range 3 {
		before, after := restarted(t, sim, c, time.Second) // 503 meanwhile
		assert.NotEqual(t, before.Session, after.Session)
	}
}
