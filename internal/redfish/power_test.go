package redfish_test

import (
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

func TestOffAndOn(t *testing.T) {
	sim, c := one(t)
	bmctest.Read(t, c)
	before := c.Requests()
	receipt, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.False(t, receipt.Already)
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	assert.Equal(t, 2, c.Requests()-before, "warm: off and confirm are one request each")
	assert.False(t, sim.Power())

	_, err = c.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
	for _, r := range sim.Requests() {
		assert.Empty(t, r.IfMatch, "If-Match would race with the power state")
	}
}

func TestColdOffReadsTheAllowedTypesFirst(t *testing.T) {
	sim, c := one(t)
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.False(t, sim.Power())
	assert.Equal(t, 3, c.Requests(), "login, system, reset")
}

func TestProofOfOff(t *testing.T) {
	_, c := one(t)
	proof := bmc.Proof{Spacing: 20 * time.Millisecond, MaxAge: pace.Tries}
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
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

func TestLateOffIsUnknownMeanwhile(t *testing.T) {
	sim, c := one(t)
	pace.Before(t, time.Second, func(lag time.Duration) func() {
		require.NoError(t, sim.SetPower(true))
		sim.Quirks(func(q *redfishsim.Quirks) { q.Lag, q.Task = lag, true })
		_, err := c.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err, "202 with a task is accepted")
		r := bmctest.Read(t, c)
		return func() {
			assert.Equal(t, bmc.Unknown, r.State)
			assert.Equal(t, "PoweringOff", r.Raw)
		}
	})
	assert.Eventually(t, func() bool { return bmctest.Read(t, c).State == bmc.Off }, pace.Tries, 50*time.Millisecond)
	assert.False(t, sim.Power())
}

func TestAcceptedIsNotOff(t *testing.T) {
	sim, c := one(t)
	require.NoError(t, sim.IgnoreOff(true))
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

func TestLyingBMCIsReadAsItSays(t *testing.T) {
	sim, c := one(t)
	require.NoError(t, sim.LieOff(true))
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	assert.True(t, sim.Power(), "only the Node's Lease can tell (FalseOff)")
}

func TestAlreadyThere(t *testing.T) {
	for _, status := range []int{http.StatusConflict, http.StatusBadRequest} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			sim, c := one(t)
			sim.Quirks(func(q *redfishsim.Quirks) { q.RefuseSame = status })
			require.NoError(t, sim.SetPower(false))
			receipt, err := c.Send(t.Context(), bmc.CommandOff)
			require.NoError(t, err)
			assert.True(t, receipt.Already)
		})
	}
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
