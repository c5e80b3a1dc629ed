package redfish_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/redfishsim"
)

// I1: an answer that repeats a name proves no state and no identity, whichever of
// the values comes last, and no command goes to its action.
func TestRepeatedNameIsUnknown(t *testing.T) {
	const reset = `{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/2/Actions/ComputerSystem.Reset"}}`
	for name, more := range map[string]string{
		"the state":                 `"PowerState":"Off"`,
		"the same state":            `"PowerState":"On"`,
		"the state in another case": `"powerState":"Off"`,
		"the state, escaped":        `"Power\u0053tate":"Off"`,
		"the identity":              `"UUID":"` + uuid2 + `"`,
		"the serial number":         `"serialNumber":"SN-2"`,
		"the action":                `"Actions":` + reset,
		"deep inside":               `"Oem":{"Maker":[{"a":1,"b":{"c":1,"c":2}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			require.Equal(t, bmc.On, bmctest.Read(t, c).State)
			sim.Quirks(func(q *redfishsim.Quirks) { q.Repeat = more })
			r := bmctest.Read(t, c)
			assert.Equal(t, bmc.Unknown, r.State)
			assert.Empty(t, r.Identity)
			assert.Contains(t, r.Raw, "the answer repeats ")
			_, err := c.Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindProtocol).Sent)
			assert.Zero(t, sim.Count(http.MethodPost, "/redfish/v1/Systems"))
			_, err = c.Describe(t.Context())
			bmctest.Failed(t, err, bmc.KindProtocol)

			sim.Quirks(func(q *redfishsim.Quirks) { q.Repeat = "" })
			assert.Equal(t, uuid1, bmctest.Read(t, c).Identity.UUID)
		})
	}
}

// iLO 4 has the links of two schemas in each resource.
func TestLinksInTwoSpellings(t *testing.T) {
	sim, c := one(t)
	sim.Quirks(func(q *redfishsim.Quirks) { q.Repeat = `"links":{"self":{"href":"/rest/v1/systems/1"}},"Power":"On"` })
	assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
}

// Of several systems, one that repeats its UUID may be the wanted one.
func TestRepeatedNameAmongSystems(t *testing.T) {
	sim, d := three(t)
	d.SystemUUID = uuid2
	sim.System(2).Quirks(func(q *redfishsim.Quirks) { q.Repeat = `"UUID":"` + uuid2 + `"` })
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindProtocol)

	sim.System(2).Quirks(func(q *redfishsim.Quirks) { q.Repeat = "" })
	c := open(t, d, timing)
	require.Equal(t, uuid2, bmctest.Read(t, c).Identity.UUID)
	sim.System(1).Quirks(func(q *redfishsim.Quirks) { q.Repeat = `"PowerState":"Off"` })
	assert.Equal(t, bmc.Unknown, bmctest.Read(t, c).State, "also for a system that was found by its UUID")
}

// A list of reset types that is there twice allows nothing.
func TestRepeatedNameInActionInfo(t *testing.T) {
	info := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/info":
			_, _ = w.Write([]byte(info))
		default:
			_, _ = w.Write([]byte(`{"PowerState":"On","Actions":{"#ComputerSystem.Reset":{"target":"/Actions/x","@Redfish.ActionInfo":"/info"}}}`))
		}
	}))
	t.Cleanup(srv.Close)
	e, err := bmc.ParseEndpoint("redfish+http://" + strings.TrimPrefix(srv.URL, "http://") + "/redfish/v1/Systems/1")
	require.NoError(t, err)
	send := func(more string) error {
		info = `{"Parameters":[{"Name":"ResetType","AllowableValues":["ForceOff"]}]` + more + `}`
		c := open(t, bmc.Device{Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret")}, timing)
		_, err := c.Send(t.Context(), bmc.CommandOff)
		return err
	}
	require.NoError(t, send(""))
	bmctest.Failed(t, send(`,"parameters":[{"Name":"ResetType","AllowableValues":["GracefulShutdown"]}]`), bmc.KindProtocol)
}

// Two values are no answer, whichever comes first.
func TestAnswerIsOneValue(t *testing.T) {
	for _, body := range []string{`{"PowerState":"On"}{"PowerState":"Off"}`, `{"PowerState":"Off"}{"PowerState":"On"}`, `{"PowerState":"Off"} x`} {
		_, err := open(t, answerWith(t, body), timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindProtocol)
	}
	assert.Equal(t, bmc.Off, bmctest.Read(t, open(t, answerWith(t, "{\"PowerState\":\"Off\"}\r\n\x00"), timing)).State, "the end of a C string")
}
