package redfish_test

import (
	"encoding/base64"
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

func TestRedirectOffHostIsRefused(t *testing.T) {
	sim, c := one(t)
	thief := start(t, redfishsim.Options{})
	sim.Faults(func(f *redfishsim.Faults) { f.RedirectTo = thief.URL() })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindProtocol)
	assert.Contains(t, err.Error(), "another host")
	assert.Empty(t, thief.Requests(), "the token is not shown elsewhere")
}

// A command is not followed to another host, nor where it would become a read: the
// 200 of a GET would look like an accepted command. // I10
func TestRedirectOfACommandIsRefused(t *testing.T) {
	thief := start(t, redfishsim.Options{})
	for name, to := range map[string]func(sim *redfishsim.Server) (string, int){
		"another host": func(*redfishsim.Server) (string, int) { return thief.URL(), http.StatusTemporaryRedirect },
		"another scheme": func(sim *redfishsim.Server) (string, int) {
			return "http://" + sim.Addr(), http.StatusPermanentRedirect
		},
		"301": func(sim *redfishsim.Server) (string, int) {
			return sim.URL() + "/elsewhere", http.StatusMovedPermanently
		},
		"302": func(sim *redfishsim.Server) (string, int) { return sim.URL() + "/elsewhere", http.StatusFound },
		"303": func(sim *redfishsim.Server) (string, int) { return sim.URL() + "/elsewhere", http.StatusSeeOther },
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := one(t)
			bmctest.Read(t, c)
			sim.Faults(func(f *redfishsim.Faults) { f.RedirectTo, f.RedirectStatus = to(sim) })
			_, err := c.Send(t.Context(), bmc.CommandOff)
			bmctest.Failed(t, err, bmc.KindProtocol)
			assert.Contains(t, err.Error(), "not followed")
			assert.Zero(t, sim.Count("", "/elsewhere"))
			assert.Empty(t, thief.Requests(), "neither the token nor the password is shown elsewhere")
		})
	}
}

// A redirect that leads to itself ends.
func TestRedirectsAreBounded(t *testing.T) {
	sim, c := one(t)
	bmctest.Read(t, c)
	sim.Faults(func(f *redfishsim.Faults) { f.RedirectTo = sim.URL() })
	before := c.Requests()
	_, err := c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.SentMaybe, bmctest.Failed(t, err, bmc.KindProtocol).Sent, "each of them took the command")
	assert.Equal(t, 4, c.Requests()-before)
	assert.True(t, sim.Power())
	_, err = c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindProtocol)
}

// "@thief/" pasted behind https://bmc:443 is a URL on thief.
func TestLinkOffHostIsRefused(t *testing.T) {
	thief := start(t, redfishsim.Options{})
	for _, member := range []string{"@" + thief.Addr() + "/redfish/v1/Systems/1", thief.URL() + "/redfish/v1/Systems/1"} {
		sim := start(t, redfishsim.Options{})
		sim.Faults(func(f *redfishsim.Faults) { f.Member = member })
		h := hostOf(t, sim)
		h.Endpoint.System = ""
		_, err := open(t, h, timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindProtocol)
		assert.Empty(t, thief.Requests())
	}
}

// Where no BMC may be, nobody is asked, whatever name that address has. // I10
func TestNoConnectionWhereNoBMCMayBe(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost"} {
		sim := start(t, redfishsim.Options{})
		d := hostOf(t, sim)
		d.Endpoint.Host, d.Networks = host, &bmc.Networks{}
		_, err := open(t, d, timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindUnreachable)
		require.ErrorContains(t, err, "loopback")
		assert.Empty(t, sim.Requests())
	}
}

func TestHugeBodyIsNotRead(t *testing.T) {
	sim, c := one(t)
	bmctest.Read(t, c)
	sim.Faults(func(f *redfishsim.Faults) { f.HugeBody = 900 << 10 })
	bmctest.Read(t, c) // large is fine
	sim.Faults(func(f *redfishsim.Faults) { f.HugeBody = 2 << 20 })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindProtocol)
	assert.Contains(t, err.Error(), "larger than 1048576 bytes")
}

// I25: a canary in every credential, and a BMC that repeats what it was sent.
func TestNoCredentialInErrors(t *testing.T) {
	for _, password := range []string{"canary-o451", `canary "o451" <&>`} {
		t.Run(password, func(t *testing.T) {
			basic := base64.StdEncoding.EncodeToString([]byte("admin:" + password))
			check := func(err error) {
				t.Helper()
				require.Error(t, err)
				assert.Contains(t, err.Error(), "[redacted]", "the BMC did repeat it")
				assert.NotContains(t, err.Error(), "o451")
				assert.NotContains(t, err.Error(), basic)
			}
			sim := start(t, redfishsim.Options{Password: "other"})
			sim.Faults(func(f *redfishsim.Faults) { f.EchoCredentials = true })
			h := hostOf(t, sim)
			h.Password = bmc.NewSecret(password)

			_, err := open(t, h, timing).Read(t.Context())
			check(err) // of the login
			sim.Faults(func(f *redfishsim.Faults) { f.NoSessions = true })
			_, err = open(t, h, timing).Read(t.Context())
			check(err) // of Basic
			sim.Faults(func(f *redfishsim.Faults) { f.NoSessions = false })

			sim.SetPassword(password)
			c := open(t, h, timing)
			bmctest.Read(t, c)
			sim.Quirks(func(q *redfishsim.Quirks) { q.RefuseReset = http.StatusForbidden })
			_, err = c.Send(t.Context(), bmc.CommandOff)
			check(err) // of the token
		})
	}
}

// answerWith is a BMC over plain HTTP that has sessions for all, and this
// answer about everything else.
func answerWith(t *testing.T, body string) bmc.Device {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/redfish/v1/":
			_, _ = w.Write([]byte(`{"Systems":{"@odata.id":"/redfish/v1/Systems"}}`))
		default:
			_, _ = w.Write([]byte(body))
		}
	}))
	t.Cleanup(srv.Close)
	e, err := bmc.ParseEndpoint("redfish+http://" + strings.TrimPrefix(srv.URL, "http://") + "/redfish/v1/Systems/1")
	require.NoError(t, err)
	return bmc.Device{Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret")}
}

func TestAnswersThatAreNoSystem(t *testing.T) {
	for _, body := range []string{`null`, `[]`, `"Off"`, `{"PowerState":"Off"`, ``, `<html>Off</html>`} {
		t.Run(body, func(t *testing.T) {
			c := open(t, answerWith(t, body), timing)
			r, err := c.Read(t.Context())
			require.Error(t, err)
			assert.Equal(t, bmc.Unknown, r.State)
		})
	}
	t.Run("bare", func(t *testing.T) {
		r := bmctest.Read(t, open(t, answerWith(t, `{"powerstate":"Off"}`), timing))
		assert.Equal(t, bmc.Unknown, r.State, "another name is another property")
	})
	t.Run("no service", func(t *testing.T) {
		srv := httptest.NewServer(http.NotFoundHandler())
		defer srv.Close()
		e, err := bmc.ParseEndpoint("redfish+http://" + strings.TrimPrefix(srv.URL, "http://"))
		require.NoError(t, err)
		_, err = open(t, bmc.Device{Endpoint: e}, timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindProtocol)
		assert.Contains(t, err.Error(), "no Redfish service")
	})
}
