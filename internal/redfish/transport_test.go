package redfish_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	sim, c := one(t)
	sim.Faults(func(f *redfishsim.Faults) { f.LoginStatus, f.Body = http.StatusBadRequest, redfishsim.BodyCut })
	_, err := c.Read(t.Context())
	bmctest.Failed(t, err, bmc.KindAuth)
	assert.Equal(t, 1, sim.Count(http.MethodPost, sessions))
}

// TestRefusalOfILO: iLO refuses a password with 400. For some seconds after it, whoever sent it, iLO looks at none
// and names the delay. That says nothing about the account.
func TestRefusalOfILO(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bmc.Kind{
		"UnauthorizedLoginAttempt":   bmc.KindAuth,
		"LoginAttemptDelayed":        bmc.KindBusy,
		"LoginAttemptDelayedSeconds": bmc.KindBusy,
		"PropertyValueBadParam":      bmc.KindProtocol,
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			var logins atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					_, _ = w.Write([]byte(`{"Links":{"Sessions":{"@odata.id":"` + sessions + `"}}}`))
					return
				}
				logins.Add(1)
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"error":{"code":"iLO.0.10.ExtendedInfo","@Message.ExtendedInfo":[{"MessageId":"iLO.2.18.` + id + `"}]}}`))
			}))
			defer srv.Close()
			_, err := open(t, plainHost(t, srv), timing).Read(t.Context())
			bmctest.Failed(t, err, want)
			assert.EqualValues(t, 1, logins.Load())
		})
	}
}

// TestResetWhateverTheBody: the status of a reset says whether it was accepted, and a
// body that ends early is no restart of the BMC.
func TestResetWhateverTheBody(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	bmctest.Send(t, c, bmc.CommandOff)
	for _, r := range sim.Requests() {
		assert.Equal(t, http.MethodPost, r.Method, "the method is kept")
		assert.Equal(t, "session", r.Auth)
	}
	assert.Len(t, sim.Requests(), 2)
	require.NoError(t, c.Close(t.Context()))
}

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

// TestNoTokenOfAnEndedSessionInErrors: the token of a session that the client has just given up is not
// shown either, as the BMC may still take it. // I25
func TestNoTokenOfAnEndedSessionInErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		read int // the status of a reading
		fail func(*redfish.Client) error
	}{
		"refused": {http.StatusUnauthorized, func(c *redfish.Client) error { _, err := c.Read(t.Context()); return err }},
		"cannot be ended": {http.StatusOK, func(c *redfish.Client) error {
			bmctest.Read(t, c)
			return c.Close(t.Context())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status := tc.read
				switch r.Method {
				case http.MethodPost:
					w.Header().Set("X-Auth-Token", "canary-o451")
					w.Header().Set("Location", sessions+"/7")
					status = http.StatusCreated
				case http.MethodDelete:
					status = http.StatusInternalServerError
				}
				w.WriteHeader(status)
				_, _ = w.Write([]byte(`{"error":{"message":"You sent: ` + r.Header.Get("X-Auth-Token") + `"}}`))
			}))
			defer srv.Close()
			err := tc.fail(open(t, plainHost(t, srv), timing))
			require.ErrorContains(t, err, "You sent: [redacted]")
		})
	}
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
		d := plainHost(t, srv)
		d.Endpoint.System = ""
		_, err := open(t, d, timing).Read(t.Context())
		bmctest.Failed(t, err, bmc.KindProtocol)
		assert.Contains(t, err.Error(), "no Redfish service")
	})
}
