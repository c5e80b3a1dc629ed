package redfish_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/redfishsim"
)

// offAndOn reads, switches off and on, and checks that the host followed.
func offAndOn(t *testing.T, sim *redfishsim.Server, d bmc.Device) {
	t.Helper()
	c := open(t, d, timing)
	require.Equal(t, bmc.On, bmctest.Read(t, c).State)
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.False(t, sim.Power())
	assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	_, err = c.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err)
	assert.True(t, sim.Power())
	assert.Equal(t, []bool{false, true}, sim.System(0).Commands(), "each was carried out once")
}

// proxmox-redfish names a session service and demands Basic authentication for a
// login to it.
func TestBasicOnTheLoginItself(t *testing.T) {
	sim := start(t, redfishsim.Options{UUID: uuid1})
	sim.Faults(func(f *redfishsim.Faults) { f.BasicOnly = true })
	d := hostOf(t, sim)
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Contains(t, err.Error(), "auth: basic")

	d.BasicAuth = true
	sim.ResetRequests()
	offAndOn(t, sim, d)
	assert.Zero(t, sim.Count(http.MethodPost, sessions), "no login is tried")

	d.Password = bmc.NewSecret("wrong")
	c := open(t, d, timing)
	sim.ResetRequests()
	_, err = c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Len(t, sim.Requests(), 1, "a refused password is not sent again")
}

// A refused password alone gets no hint about Basic authentication.
func TestNoHintWithoutAChallenge(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	d := hostOf(t, sim)
	d.Password = bmc.NewSecret("wrong")
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.NotContains(t, err.Error(), "auth: basic")
}

// The whole suite, for a device that is configured so.
func TestSuiteBasicOnly(t *testing.T) {
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			sim := start(t, redfishsim.Options{UUID: uuid1})
			sim.Faults(func(f *redfishsim.Faults) { f.BasicOnly = true })
			w := worldOf(sim)
			w.Device.BasicAuth = true
			w.Logins = func() int { return refused(sim) }
			return w
		},
		Cannot: map[string]string{"Bad": "TCP mends what a network loses"},
	})
}

// iLO 5 compresses though nobody asked for it.
func TestAnswersThatAreCompressed(t *testing.T) {
	sim := start(t, redfishsim.Options{UUID: uuid1})
	sim.Faults(func(f *redfishsim.Faults) { f.Gzip = true })
	d := hostOf(t, sim)
	offAndOn(t, sim, d)

	c := open(t, d, timing)
	sim.Faults(func(f *redfishsim.Faults) { f.HugeBody = 900 << 10 })
	bmctest.Read(t, c)
	sim.Faults(func(f *redfishsim.Faults) { f.HugeBody = 8 << 20 }) // 8 KiB on the wire
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindProtocol)
	assert.Contains(t, err.Error(), "larger than 1048576 bytes")

	sim.Faults(func(f *redfishsim.Faults) { f.HugeBody = 0 })
	sim.Quirks(func(q *redfishsim.Quirks) { q.RefuseReset = http.StatusForbidden })
	_, err = c.Send(t.Context(), bmc.CommandOff)
	bmctest.Failed(t, err, bmc.KindPrivilege)
	assert.Contains(t, err.Error(), "The action is refused.", "the text of an error is compressed, too")
}

// What is named as compressed and is not, or in another way, is no answer.
func TestAnswersOfAnotherEncoding(t *testing.T) {
	for _, encoding := range []string{"gzip", "br", "deflate", "gzip, gzip"} {
		sim, c := one(t)
		bmctest.Read(t, c)
		sim.Faults(func(f *redfishsim.Faults) { f.Encoding = encoding })
		_, err := c.Read(t.Context())
		bmctest.Failed(t, err, bmc.KindProtocol)
		sim.Quirks(func(q *redfishsim.Quirks) { q.RefuseReset = http.StatusForbidden })
		sim.Faults(func(f *redfishsim.Faults) { f.Encoding = "" })
		bmctest.Read(t, c)
		sim.Faults(func(f *redfishsim.Faults) { f.Encoding = encoding })
		_, err = c.Send(t.Context(), bmc.CommandOff)
		bmctest.Failed(t, err, bmc.KindPrivilege)
	}
	sim, c := one(t)
	sim.Faults(func(f *redfishsim.Faults) { f.Encoding = "Identity" })
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
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
		_, err := c.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err)
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

// A target with the service's own address in front is its path.
func TestTargetThatIsAWholeURL(t *testing.T) {
	const path = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
	sim := start(t, redfishsim.Options{UUID: uuid1})
	sim.Quirks(func(q *redfishsim.Quirks) { q.Target = sim.URL() + path })
	offAndOn(t, sim, hostOf(t, sim))

	thief := start(t, redfishsim.Options{})
	for _, target := range []string{
		thief.URL() + path, "http://" + sim.Addr() + path, "https://admin@" + sim.Addr() + path, "//" + thief.Addr() + path,
		"@" + thief.Addr() + path, "redfish/v1", "https:opaque", "https://", "%zz", sim.URL() + "/" + strings.Repeat("x", 2000),
	} {
		c := open(t, hostOf(t, sim), timing)
		bmctest.Read(t, c)
		sim.Quirks(func(q *redfishsim.Quirks) { q.Target = target })
		bmctest.Read(t, c)
		before := len(sim.System(0).Commands())
		_, err := c.Send(t.Context(), bmc.CommandOff)
		require.Error(t, err, target)
		assert.Len(t, sim.System(0).Commands(), before, target)
		assert.Empty(t, thief.Requests(), target)
	}
}

// iLO 5 redirects each path without its slash, a login and an action too.
func TestRedirectsOnTheSameHost(t *testing.T) {
	sim := start(t, redfishsim.Options{UUID: uuid1})
	sim.Faults(func(f *redfishsim.Faults) { f.Slashes = true })
	offAndOn(t, sim, hostOf(t, sim))

	c := open(t, hostOf(t, sim), timing)
	bmctest.Read(t, c)
	sim.ResetRequests()
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	for _, r := range sim.Requests() {
		assert.Equal(t, http.MethodPost, r.Method, "the method is kept")
		assert.Equal(t, "session", r.Auth)
	}
	assert.Len(t, sim.Requests(), 2)
	require.NoError(t, c.Close(t.Context()))
}

// A service may list its only system twice.
func TestMemberThatIsListedTwice(t *testing.T) {
	sim := start(t, redfishsim.Options{UUID: uuid1})
	sim.Faults(func(f *redfishsim.Faults) { f.MembersTwice = true })
	d := hostOf(t, sim)
	d.Endpoint.System = ""
	offAndOn(t, sim, d)

	sim, d = three(t)
	sim.Faults(func(f *redfishsim.Faults) { f.MembersTwice = true })
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindIdentity)
	assert.Contains(t, err.Error(), "has 3 systems")
	d.SystemUUID = uuid2
	assert.Equal(t, uuid2, bmctest.Read(t, open(t, d, timing)).Identity.UUID, "found by its UUID, once")
}

// OpenBMC lets an account do nothing with the password that it comes with.
func TestPasswordThatMustBeChanged(t *testing.T) {
	sim, c := one(t)
	sim.Faults(func(f *redfishsim.Faults) { f.PasswordChange = true })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindPrivilege)
	assert.Contains(t, err.Error(), "log in to the BMC, change it")
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Contains(t, err.Error(), "log in to the BMC, change it")
}
