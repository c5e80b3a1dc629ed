package redfish_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
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

func TestReadGivesStateAndIdentity(t *testing.T) {
	sim, c := one(t)
	before := time.Now()
	r := bmctest.Read(t, c)
	assert.Equal(t, bmc.On, r.State)
	assert.Equal(t, "On", r.Raw)
	assert.Equal(t, bmc.Identity{UUID: uuid1, Serial: "SN-1"}, r.Identity)
	assert.NotZero(t, r.Session)
	assert.Empty(t, r.Fault)
	assert.False(t, r.At.Before(before))
	assert.Equal(t, 2, c.Requests(), "cold: login, system")

	require.NoError(t, sim.SetPower(false))
	again := bmctest.Read(t, c)
	assert.Equal(t, bmc.Off, again.State)
	assert.Equal(t, r.Session, again.Session)
	assert.Equal(t, 3, c.Requests(), "warm: one request")
	assert.Len(t, sim.Requests(), 3, "the service counts the same")
	assert.Equal(t, 1, sim.Connections(), "one TLS handshake")
}

func TestProofOfOff(t *testing.T) {
	_, c := one(t)
	proof := bmc.Proof{Spacing: 20 * time.Millisecond, MaxAge: pace.Tries}
	bmctest.Send(t, c, bmc.CommandOff)
	proof = proof.Add(bmctest.Read(t, c))
	assert.False(t, proof.Proven(time.Now()))
	time.Sleep(25 * time.Millisecond)
	proof = proof.Add(bmctest.Read(t, c))
	assert.True(t, proof.Proven(time.Now()))
}

func TestStatesThatAreNotOff(t *testing.T) {
	for say, raw := range map[string]string{
		`"PoweringOff"`: "PoweringOff", `"PoweringOn"`: "PoweringOn", `"Paused"`: "Paused", `"off"`: "off",
		`"Off "`: "Off ", `""`: "", `null`: "null", `0`: "0", `["Off"]`: `["Off"]`,
	} {
		t.Run(say, func(t *testing.T) {
			sim, c := one(t)
			sim.Quirks(func(q *redfishsim.Quirks) { q.SayPower = say })
			r := bmctest.Read(t, c)
			assert.Equal(t, bmc.Unknown, r.State)
			assert.Equal(t, raw, r.Raw)
		})
	}
}

func TestAcceptedIsNotOff(t *testing.T) {
	sim, c := one(t)
	require.NoError(t, sim.IgnoreOff(true))
	bmctest.Send(t, c, bmc.CommandOff)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

func TestRefusedAndNotThere(t *testing.T) {
	for status, kind := range map[int]bmc.Kind{
		http.StatusConflict:            bmc.KindBusy,
		http.StatusBadRequest:          bmc.KindProtocol,
		http.StatusForbidden:           bmc.KindPrivilege,
		http.StatusInternalServerError: bmc.KindProtocol,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			sim, c := one(t)
			sim.Quirks(func(q *redfishsim.Quirks) { q.RefuseReset = status })
			_, err := c.Send(t.Context(), bmc.CommandOff)
			e := bmctest.Failed(t, err, kind)
			assert.Contains(t, err.Error(), "The action is refused.")
			assert.Contains(t, err.Error(), "send off of https://")
			want := bmc.SentYes
			if status >= 500 {
				want = bmc.SentMaybe
			}
			assert.Equal(t, want, e.Sent)

			before := sim.Count(http.MethodGet, sim.System(0).URI())
			_, err = c.Send(t.Context(), bmc.CommandOff)
			require.Error(t, err)
			assert.Greater(t, sim.Count(http.MethodGet, sim.System(0).URI()), before, "what it allows is read again")
		})
	}
}

func TestResetTypes(t *testing.T) {
	soft := []string{"On", "GracefulShutdown", "PushPowerButton"}
	for name, tc := range map[string]struct {
		quirks redfishsim.Quirks
		cmd    bmc.Command
		kind   bmc.Kind
	}{
		"listed in an ActionInfo":          {redfishsim.Quirks{ActionInfo: true}, bmc.CommandOff, ""},
		"listed nowhere":                   {redfishsim.Quirks{NoResetTypes: true}, bmc.CommandOff, ""},
		"only soft types":                  {redfishsim.Quirks{ResetTypes: soft}, bmc.CommandOff, bmc.KindUnsupported},
		"only soft types in an ActionInfo": {redfishsim.Quirks{ResetTypes: soft, ActionInfo: true}, bmc.CommandOff, bmc.KindUnsupported},
		"no reset at all":                  {redfishsim.Quirks{NoReset: true}, bmc.CommandOff, bmc.KindUnsupported},
		"on by ForceOn":                    {redfishsim.Quirks{ResetTypes: []string{"ForceOn", "ForceOff"}}, bmc.CommandOn, ""},
		"no command":                       {redfishsim.Quirks{}, bmc.Command(0), bmc.KindUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			sim.Quirks(func(q *redfishsim.Quirks) { *q = tc.quirks })
			_, err := c.Send(t.Context(), tc.cmd)
			if tc.kind == "" {
				require.NoError(t, err)
				assert.Equal(t, []bool{tc.cmd == bmc.CommandOn}, sim.System(0).Commands())
				return
			}
			e := bmctest.Failed(t, err, tc.kind)
			assert.Equal(t, bmc.SentNo, e.Sent)
			assert.Empty(t, sim.System(0).Commands())
			if len(tc.quirks.ResetTypes) > 0 {
				assert.Contains(t, err.Error(), "PushPowerButton", "the error lists what is allowed")
			}
		})
	}
}

// AMI MegaRAC and Huawei iBMC take no action without the ETag of the system.
func TestResetThatNeedsAnETag(t *testing.T) {
	for _, status := range []int{http.StatusPreconditionRequired, http.StatusPreconditionFailed} {
		sim := start(t, redfishsim.Options{UUID: uuid1})
		sim.Quirks(func(q *redfishsim.Quirks) { q.NeedETag = status })
		offAndOn(t, sim, hostOf(t, sim))

		c := open(t, hostOf(t, sim), timing)
		bmctest.Read(t, c)
		sim.ResetRequests()
		bmctest.Send(t, c, bmc.CommandOff)
		var asked []string
		for _, r := range sim.Requests() {
			asked = append(asked, r.Method+" "+r.IfMatch)
		}
		assert.Equal(t, []string{"POST ", "GET ", `POST W/"224f6e22"`}, asked, "one more try, with the ETag of now")
	}
}

// The second refusal is the last: no storm, and the BMC's own words.
func TestResetWhoseETagIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		quirks redfishsim.Quirks
		resets int
	}{
		"refused again":  {redfishsim.Quirks{RefuseReset: http.StatusPreconditionFailed}, 2},
		"there is none":  {redfishsim.Quirks{NeedETag: http.StatusPreconditionRequired, ETag: "none"}, 1},
		"it is too long": {redfishsim.Quirks{NeedETag: http.StatusPreconditionRequired, ETag: `"` + strings.Repeat("x", 300) + `"`}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			bmctest.Read(t, c)
			sim.Quirks(func(q *redfishsim.Quirks) { *q = tc.quirks })
			sim.ResetRequests()
			_, err := c.Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, bmc.SentYes, bmctest.Failed(t, err, bmc.KindProtocol).Sent)
			assert.Contains(t, err.Error(), "HTTP 4")
			assert.Equal(t, tc.resets, sim.Count(http.MethodPost, "/redfish/v1/Systems"))
			assert.Empty(t, sim.System(0).Commands())
		})
	}
}

// Who answers now is not who was read: the second try goes to nobody. // I8
func TestETagOfAnotherMachine(t *testing.T) {
	sim, c := one(t)
	bmctest.Read(t, c)
	sim.Quirks(func(q *redfishsim.Quirks) { q.NeedETag, q.UUID = http.StatusPreconditionRequired, uuid2 })
	_, err := c.Send(t.Context(), bmc.CommandOff)
	bmctest.Failed(t, err, bmc.KindIdentity)
	assert.Empty(t, sim.System(0).Commands())
}

// Two BMCs have one address, or it has gone to another: who was read is not who
// answers the command. A command goes to the machine that was read, or to none. // I8
func TestCommandIsNotGivenToAnotherBMC(t *testing.T) {
	sim, c := one(t)
	require.Equal(t, uuid1, bmctest.Read(t, c).Identity.UUID)
	sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = uuid2 }) // from here on it is another BMC,
	sim.ExpireSessions()                                      // which does not know the session
	refusedAsStranger(t, sim, c)
	refusedAsStranger(t, sim, c) // which found an open session with it

	require.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID, "the next look shows it")
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err, "who asked knows by now whom")
	assert.False(t, sim.Power())
}

// refusedAsStranger sends an Off, which must go to nobody.
func refusedAsStranger(t *testing.T, sim *redfishsim.Server, c *redfish.Client) {
	t.Helper()
	err := sendOff(t, c)
	assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
	assert.True(t, sim.Power(), "the other machine was switched off")
	assert.Empty(t, sim.System(0).Commands())
}

// sendOff gives the command again when the end of the connection was found only by
// writing to it.
func sendOff(t *testing.T, c *redfish.Client) error {
	t.Helper()
	_, err := c.Send(t.Context(), bmc.CommandOff)
	if e, ok := errors.AsType[*bmc.Error](err); ok && e.Sent == bmc.SentMaybe {
		_, err = c.Send(t.Context(), bmc.CommandOff)
	}
	return err
}

// Without a session nothing but the connection tells that it is still the same
// BMC: the password may be good at both.
func TestBasicCommandIsNotGivenToAnotherBMC(t *testing.T) {
	for name, faults := range map[string]redfishsim.Faults{
		"connections are kept":     {NoSessions: true},
		"each is announced to end": {NoSessions: true, CloseConnections: true},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			sim.Faults(func(f *redfishsim.Faults) { *f = faults })
			require.Equal(t, uuid1, bmctest.Read(t, c).Identity.UUID)
			sim.Quirks(func(q *redfishsim.Quirks) { q.UUID = uuid2 })
			sim.Restart(0) // which ends the connections
			refusedAsStranger(t, sim, c)
		})
	}
}

// A BMC that closed the connection is asked who it is, and then obeys.
func TestBasicCommandOverANewConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		faults redfishsim.Faults
		cut    bool
		looks  int // at the system, before the command
	}{
		"kept":                     {redfishsim.Faults{NoSessions: true}, false, 0},
		"cut":                      {redfishsim.Faults{NoSessions: true}, true, 1},
		"each is announced to end": {redfishsim.Faults{NoSessions: true, CloseConnections: true}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			sim.Faults(func(f *redfishsim.Faults) { *f = tc.faults })
			bmctest.Read(t, c)
			if tc.cut {
				sim.Restart(0) // which ends the connections
			}
			before := len(sim.Requests())
			require.NoError(t, sendOff(t, c))
			assert.False(t, sim.Power())
			assert.Len(t, sim.System(0).Commands(), 1)
			gets := 0
			for _, r := range sim.Requests()[before:] {
				if r.Method == http.MethodGet {
					gets++
				}
			}
			assert.Equal(t, tc.looks, gets)
		})
	}
}

// job is what is measured, and the requests that the protocol needs for it.
type job struct {
	name       string
	warm       bool
	requests   int
	handshakes int // TCP and TLS 1.3 are one round trip each
	do         func(context.Context, *redfish.Client) error
}

var jobs = []job{
	{"status, cold", false, 2, 2, status},              // login, system
	{"status, warm", true, 1, 0, status},               // system
	{"off and confirm, cold", false, 4, 2, offConfirm}, // login, system, reset, system
	{"off and confirm, warm", true, 2, 0, offConfirm},  // reset, system
}

func status(ctx context.Context, c *redfish.Client) error {
	_, err := c.Read(ctx)
	return err
}

func offConfirm(ctx context.Context, c *redfish.Client) error {
	if _, err := c.Send(ctx, bmc.CommandOff); err != nil {
		return err
	}
	return status(ctx, c)
}

// Each request is one round trip, and nothing is asked that need not be.
func TestRoundTrips(t *testing.T) {
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			sim, c := one(t)
			if j.warm {
				bmctest.Read(t, c)
			}
			requests, connections := c.Requests(), sim.Connections()
			require.NoError(t, j.do(t.Context(), c))
			assert.Equal(t, j.requests, c.Requests()-requests)
			assert.Equal(t, j.handshakes/2, sim.Connections()-connections)
		})
	}
}
