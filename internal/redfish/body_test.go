package redfish_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/redfishsim"
)

// eachBody runs do against a service whose answers have each fault in their bodies, but
// for what a read needs.
func eachBody(t *testing.T, do func(t *testing.T, sim *redfishsim.Server)) {
	for _, fault := range redfishsim.BodyFaults {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			sim := start(t, redfishsim.Options{UUID: uuid1})
			sim.Faults(func(f *redfishsim.Faults) { f.Body = fault })
			do(t, sim)
		})
	}
}

// TestExpiredSessionWhateverTheBody: 401 opens a new session, and the command is sent.
// iDRAC 8 ends its 401 early: dell/iDRAC-Redfish-Scripting#230, bb-Ricardo/check_redfish#90.
func TestExpiredSessionWhateverTheBody(t *testing.T) {
	eachBody(t, func(t *testing.T, sim *redfishsim.Server) {
		c := open(t, hostOf(t, sim), timing)
		first := bmctest.Read(t, c)
		sim.ExpireSessions()
		r := bmctest.Read(t, c)
		assert.Equal(t, bmc.On, r.State)
		assert.NotEqual(t, first.Session, r.Session, "a new session starts a new proof")
		for _, cmd := range []bmc.Command{bmc.CommandOff, bmc.CommandOn} {
			sim.ExpireSessions()
			pace.Until(t, cmd.String(), func() bool { // it may meet the end of its connection
				_, err := c.Send(t.Context(), cmd)
				t.Log(err)
				return err == nil
			})
			assert.Equal(t, cmd == bmc.CommandOn, sim.Power())
		}
		require.NoError(t, c.Close(t.Context()))
		assert.LessOrEqual(t, sim.OpenSessions(), 1, "a login may meet the end of its connection, too")
	})
}

// TestRefusedAccountWhateverTheBody: it is refused, not unreachable, and tried once.
func TestRefusedAccountWhateverTheBody(t *testing.T) {
	for name, tc := range map[string]struct {
		faults redfishsim.Faults
		kind   bmc.Kind
	}{
		"401":               {kind: bmc.KindAuth},
		"401, Basic":        {redfishsim.Faults{NoSessions: true}, bmc.KindAuth},
		"403":               {redfishsim.Faults{LoginStatus: http.StatusForbidden}, bmc.KindPrivilege},
		"and the root, too": {redfishsim.Faults{BodyOfReads: true}, bmc.KindAuth},
	} {
		t.Run(name, func(t *testing.T) {
			eachBody(t, func(t *testing.T, sim *redfishsim.Server) {
				sim.Faults(func(f *redfishsim.Faults) {
					fault := f.Body
					*f = tc.faults
					f.Body = fault
				})
				d := hostOf(t, sim)
				d.Password = bmc.NewSecret("another secret")
				short := timing
				short.ReadTimeout = 20 * time.Second // of a root that never comes
				_, err := open(t, d, short).Read(t.Context())
				bmctest.Failed(t, err, tc.kind)
				assert.LessOrEqual(t, sim.Count(http.MethodPost, sessions), 1)
				assert.LessOrEqual(t, refused(sim), 1)
			})
		})
	}
}

// TestRefusalOfILOWithoutItsText: iLO refuses a password with 400 and a text.
func TestRefusalOfILOWithoutItsText(t *testing.T) {
	sim, c := one(t)
	sim.Faults(func(f *redfishsim.Faults) { f.LoginStatus, f.Body = http.StatusBadRequest, redfishsim.BodyCut })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Equal(t, 1, sim.Count(http.MethodPost, sessions))
}

// TestResetWhateverTheBody: the status of a reset says whether it was accepted, and a
// body that ends early is no restart of the BMC.
func TestResetWhateverTheBody(t *testing.T) {
	for name, basic := range map[string]bool{"session": false, "Basic": true} {
		t.Run(name, func(t *testing.T) {
			eachBody(t, func(t *testing.T, sim *redfishsim.Server) {
				sim.Faults(func(f *redfishsim.Faults) { f.NoSessions = basic })
				sim.Quirks(func(q *redfishsim.Quirks) { q.Task = true })
				proveOff(t, open(t, hostOf(t, sim), timing))
				assert.False(t, sim.Power())
				for status, want := range map[int]struct {
					kind bmc.Kind
					sent bmc.Sent
				}{
					http.StatusForbidden:           {bmc.KindPrivilege, bmc.SentYes},
					http.StatusConflict:            {bmc.KindBusy, bmc.SentYes},
					http.StatusInternalServerError: {bmc.KindProtocol, bmc.SentMaybe},
				} {
					sim.Quirks(func(q *redfishsim.Quirks) { q.RefuseReset = status })
					_, err := open(t, hostOf(t, sim), timing).Send(t.Context(), bmc.CommandOn)
					assert.Equal(t, want.sent, bmctest.Failed(t, err, want.kind).Sent)
				}
			})
		})
	}
}

// TestReadNeedsItsBody: a reading that did not arrive whole is none, whatever was in it.
func TestReadNeedsItsBody(t *testing.T) {
	eachBody(t, func(t *testing.T, sim *redfishsim.Server) {
		require.NoError(t, sim.SetPower(false))
		c := open(t, hostOf(t, sim), timing)
		first := bmctest.Read(t, c)
		sim.Faults(func(f *redfishsim.Faults) { f.BodyOfReads = true })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it may never come
		defer cancel()
		r, err := c.Read(ctx)
		require.Error(t, err)
		assert.Contains(t, []bmc.Kind{bmc.KindUnreachable, bmc.KindProtocol}, bmc.KindOf(err))
		assert.Equal(t, bmc.Reading{}, r)
		sim.Faults(func(f *redfishsim.Faults) { *f = redfishsim.Faults{} })
		if bmc.KindOf(err) == bmc.KindUnreachable {
			assert.NotEqual(t, first.Session, bmctest.Read(t, c).Session, "the BMC may have restarted")
		}
	})
}
