package redfish_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
)

// I1: readings from before and after a restart of the BMC never support one proof.
func TestRestartChangesTheSession(t *testing.T) {
	for name, tc := range map[string]struct {
		faults redfishsim.Faults
		down   time.Duration
	}{
		"sessions forgotten":        {redfishsim.Faults{}, 0},
		"sessions forgotten, 503":   {redfishsim.Faults{}, 300 * time.Millisecond},
		"sessions kept, 503":        {redfishsim.Faults{KeepSessions: true}, 300 * time.Millisecond},
		"Basic, 503":                {redfishsim.Faults{NoSessions: true}, 300 * time.Millisecond},
		"Basic, and back at once":   {redfishsim.Faults{NoSessions: true}, 0},
		"no room, and back at once": {redfishsim.Faults{LoginStatus: http.StatusServiceUnavailable}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, redfishsim.Options{Off: true})
			sim.Faults(func(f *redfishsim.Faults) { *f = tc.faults })
			c := open(t, hostOf(t, sim), timing)
			proof := bmc.Proof{Spacing: time.Nanosecond, MaxAge: time.Minute}
			first := bmctest.Read(t, c)
			assert.Equal(t, first.Session, bmctest.Read(t, c).Session)
			sim.Restart(tc.down)
			after := bmctest.Read(t, c)
			assert.NotEqual(t, first.Session, after.Session)
			assert.False(t, proof.Add(first).Add(after).Proven(time.Now()))
			after = bmctest.Read(t, c) // where there is no room, a login is tried again, and its 503 is one more sign
			again := bmctest.Read(t, c)
			assert.Equal(t, after.Session, again.Session, "and then is stable")
			assert.True(t, proof.Add(after).Add(again).Proven(time.Now()))
		})
	}
}

// A service that ends each connection must still be provable off.
func TestConnectionPerAnswerIsNoRestart(t *testing.T) {
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
	for name, faults := range map[string]redfishsim.Faults{
		"session":            {CloseSilently: true},
		"Basic":              {CloseSilently: true, NoSessions: true},
		"no room, and Basic": {CloseSilently: true, LoginStatus: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, redfishsim.Options{UUID: uuid1})
			sim.Faults(func(f *redfishsim.Faults) { *f = faults })
			pace.Until(t, "two readings of one session, after two", func() bool { // on a busy machine there is time for a restart
				c := open(t, hostOf(t, sim), timing)
				bmctest.Read(t, c)
				bmctest.Read(t, c)
				third := bmctest.Read(t, c)
				before := sim.Connections()
				fourth := bmctest.Read(t, c)
				assert.Greater(t, sim.Connections(), before)
				return third.Session == fourth.Session
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
	sim := start(t, redfishsim.Options{UUID: uuid1, Off: true})
	sim.Faults(func(f *redfishsim.Faults) { f.CloseSilently, f.NoSessions = true, true })
	c := open(t, hostOf(t, sim), timing)
	for range 3 {
		before := bmctest.Read(t, c)
		sim.Restart(300 * time.Millisecond) // 503 meanwhile
		assert.NotEqual(t, before.Session, bmctest.Read(t, c).Session)
	}
}
