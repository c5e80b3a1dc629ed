package ipmi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// onPeers runs fn against each kind of BMC.
func onPeers(t *testing.T, o ipmisim.Options, fn func(*testing.T, peer, ipmisim.BMC)) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			fn(t, p, p.start(t, o))
		})
	}
}

func TestPowerFollowsCommands(t *testing.T) {
	for _, account := range []struct {
		name     string
		operator bool
	}{{"administrator", false}, {"operator", true}} {
		t.Run(account.name, func(t *testing.T) {
			onPeers(t, ipmisim.Options{Operator: account.operator}, func(t *testing.T, p peer, b ipmisim.BMC) {
				c := clientAt(t, b.Addr())
				r, err := c.Read(t.Context())
				require.NoError(t, err)
				assert.Equal(t, bmc.On, r.State)
				assert.Equal(t, guidText, r.Identity.UUID, "the GUID's bytes as on the wire")
				assert.Empty(t, r.Fault)
				assert.Equal(t, p.suite, c.suites[0].id, "the suite that worked comes first")

				receipt, err := c.Send(t.Context(), bmc.CommandOff)
				require.NoError(t, err)
				assert.Equal(t, bmc.Receipt{}, receipt)
				assert.False(t, b.Power(), "the host is off")
				off, err := c.Read(t.Context())
				require.NoError(t, err)
				assert.Equal(t, bmc.Off, off.State)
				assert.Equal(t, r.Session, off.Session, "all in one session")
				assert.False(t, off.At.Before(r.At))

				_, err = c.Send(t.Context(), bmc.CommandOn)
				require.NoError(t, err)
				assert.True(t, b.Power(), "the host is on again")
				require.NoError(t, c.Close(t.Context()))
			})
		})
	}
}

func TestAdministratorPrivilege(t *testing.T) {
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		h := hostAt(t, b.Addr())
		h.Endpoint.Privilege = "ADMINISTRATOR"
		c := New(h, timing)
		t.Cleanup(c.drop)
		_, err := c.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err)
		assert.False(t, b.Power())
	})
}

func TestPrivilegeAboveTheAccount(t *testing.T) {
	onPeers(t, ipmisim.Options{Operator: true}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		if _, debian := b.(*ipmisim.DebianBMC); debian {
			t.Skip("ipmi_sim lets an OPERATOR be ADMINISTRATOR")
		}
		h := hostAt(t, b.Addr())
		h.Endpoint.Privilege = "ADMINISTRATOR"
		c := New(h, timing)
		t.Cleanup(c.drop)
		_, err := c.Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, bmc.KindPrivilege, bmc.KindOf(err), "%v", err)
		var e *bmc.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, bmc.SentNo, e.Sent, "the command itself was never sent")
		assert.True(t, b.Power())
	})
}

func TestWrongPassword(t *testing.T) {
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		h := hostAt(t, relay.Addr())
		h.Password = bmc.NewSecret("not-the-password")
		h.CipherSuites = []int{3, 17}
		c := New(h, timing)
		_, err := c.Read(t.Context())
		assert.Equal(t, bmc.KindAuth, bmc.KindOf(err), "%v", err)
		assert.NotContains(t, err.Error(), "not-the-password")
		assert.Eventually(t, func() bool { return failedLogins(relay.Seen()) == 1 }, pace.Hang, time.Millisecond, "tried once: a BMC locks accounts")
		assert.Zero(t, proofs(relay.Seen()), "the wrong password proves nothing, and is not sent")
	})
}

func TestUnknownUser(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		h := hostAt(t, b.Addr())
		h.Username = "nobody"
		c := New(h, timing)
		_, err := c.Read(t.Context())
		if _, pyghmi := b.(*ipmisim.PyghmiBMC); pyghmi {
			assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
			assert.ErrorContains(t, err, "which some BMCs do not answer for an unknown user")
			return
		}
		assert.Equal(t, bmc.KindAuth, bmc.KindOf(err), "%v", err)
	})
}

func TestSuiteThatTheBMCHasNot(t *testing.T) {
	onPeers(t, ipmisim.Options{}, func(t *testing.T, p peer, b ipmisim.BMC) {
		h := hostAt(t, b.Addr())
		h.CipherSuites = []int{20 - p.suite} // the other of 3 and 17
		c := New(h, timing)
		_, err := c.Read(t.Context())
		want := bmc.KindUnsupported
		if _, pyghmi := b.(*ipmisim.PyghmiBMC); pyghmi {
			want = bmc.KindProtocol // it answers with suite 3, whatever was asked for
		}
		assert.Equal(t, want, bmc.KindOf(err), "%v", err)
		assert.ErrorContains(t, err, "cipherSuites")
	})
}

func TestLongestCredentials(t *testing.T) {
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			o := ipmisim.Options{User: "sixteen-bytes-ab", Password: "twenty-bytes-of-pass"}
			if p.name == "ipmi_sim suite 3" { // it takes one byte and four less
				o = ipmisim.Options{User: "fifteen-bytes-a", Password: "sixteen-bytes-pw"}
			}
			h := hostAt(t, p.start(t, o).Addr())
			h.Username, h.Password = o.User, bmc.NewSecret(o.Password)
			c := New(h, timing)
			t.Cleanup(c.drop)
			_, err := c.Read(t.Context())
			require.NoError(t, err)
		})
	}
}

func TestHostsThatIPMICannotDrive(t *testing.T) {
	for name, change := range map[string]func(*bmc.Device){
		"password too long":  func(h *bmc.Device) { h.Password = bmc.NewSecret("twenty-one-bytes-long") },
		"user name too long": func(h *bmc.Device) { h.Username = "seventeen-bytes-a" },
		"suite 0":            func(h *bmc.Device) { h.CipherSuites = []int{17, 0} },
		"odd privilege":      func(h *bmc.Device) { h.Endpoint.Privilege = "USER" },
	} {
		t.Run(name, func(t *testing.T) {
			relay := relayTo(t, startGo(t, ipmisim.Options{}))
			h := hostAt(t, relay.Addr())
			change(&h)
			c := New(h, timing)
			_, err := c.Read(t.Context())
			assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
			_, err = c.Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
			assert.NotContains(t, err.Error(), "twenty-one-bytes-long")
			assert.Zero(t, relay.Asked(), "nothing was sent")
		})
	}
}
