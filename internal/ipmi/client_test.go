package ipmi

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
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
	t.Parallel()
	for _, account := range []struct {
		name      string
		operator  bool // the account's right
		privilege string
	}{{"administrator", false, "OPERATOR"}, {"operator", true, "OPERATOR"}, {"administrator as such", false, "ADMINISTRATOR"}} {
		t.Run(account.name, func(t *testing.T) {
			onPeers(t, ipmisim.Options{Operator: account.operator}, func(t *testing.T, p peer, b ipmisim.BMC) {
				c := clientAt(t, b.Addr(), func(d *bmc.Device) { d.Endpoint.Privilege = account.privilege })
				r := bmctest.Read(t, c)
				assert.Equal(t, bmc.On, r.State)
				assert.Equal(t, guidText, r.Identity.UUID, "the GUID's bytes as on the wire")
				assert.Empty(t, r.Fault)
				assert.Equal(t, p.suite, c.suites[0].id, "the suite that worked comes first")

				receipt := bmctest.Send(t, c, bmc.CommandOff)
				assert.Equal(t, bmc.Receipt{}, receipt)
				assert.False(t, b.Power(), "the host is off")
				off := bmctest.Read(t, c)
				assert.Equal(t, bmc.Off, off.State)
				assert.Equal(t, r.Session, off.Session, "all in one session")
				assert.False(t, off.At.Before(r.At))

				bmctest.Send(t, c, bmc.CommandOn)
				assert.True(t, b.Power(), "the host is on again")
				require.NoError(t, c.Close(t.Context()))
			})
		})
	}
}

func TestPrivilegeAboveTheAccount(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{Operator: true}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		if _, debian := b.(*ipmisim.DebianBMC); debian {
			t.Skip("ipmi_sim lets an OPERATOR be ADMINISTRATOR")
		}
		_, err := clientAt(t, b.Addr(), asAdministrator).Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindPrivilege).Sent, "the command itself was never sent")
		assert.True(t, b.Power())
	})
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		_, err := clientAt(t, relay.Addr(), withPassword("not-the-password"), withSuites(3, 17)).Read(t.Context())
		assert.Equal(t, bmc.KindAuth, bmc.KindOf(err), "%v", err)
		assert.NotContains(t, err.Error(), "not-the-password")
		assert.Eventually(t, func() bool { return failedLogins(relay.Seen()) == 1 }, pace.Hang, time.Millisecond, "tried once: a BMC locks accounts")
		assert.Zero(t, proofs(relay.Seen()), "the wrong password proves nothing, and is not sent")
	})
}

func TestUnknownUser(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		_, err := clientAt(t, b.Addr(), func(d *bmc.Device) { d.Username = "nobody" }).Read(t.Context())
		if _, pyghmi := b.(*ipmisim.PyghmiBMC); pyghmi {
			assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
			assert.ErrorContains(t, err, "which some BMCs do not answer for an unknown user")
			return
		}
		assert.Equal(t, bmc.KindAuth, bmc.KindOf(err), "%v", err)
	})
}

func TestSuiteThatTheBMCHasNot(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, p peer, b ipmisim.BMC) {
		_, err := clientAt(t, b.Addr(), withSuites(20-p.suite)).Read(t.Context()) // the other of 3 and 17
		want := bmc.KindUnsupported
		if _, pyghmi := b.(*ipmisim.PyghmiBMC); pyghmi {
			want = bmc.KindProtocol // it answers with suite 3, whatever was asked for
		}
		assert.Equal(t, want, bmc.KindOf(err), "%v", err)
		assert.ErrorContains(t, err, "cipherSuites")
	})
}

func TestLongestCredentials(t *testing.T) {
	t.Parallel()
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			o := ipmisim.Options{User: "sixteen-bytes-ab", Password: "twenty-bytes-of-pass"}
			if p.name == "ipmi_sim suite 3" { // it takes one byte and four less
				o = ipmisim.Options{User: "fifteen-bytes-a", Password: "sixteen-bytes-pw"}
			}
			bmctest.Read(t, clientAt(t, p.start(t, o).Addr(), withPassword(o.Password), func(d *bmc.Device) { d.Username = o.User }))
		})
	}
}

func TestHostsThatIPMICannotDrive(t *testing.T) {
	for name, change := range map[string]func(*bmc.Device){
		"password too long":  withPassword("twenty-one-bytes-long"),
		"BMC key too long":   func(d *bmc.Device) { d.BMCKey = bmc.NewSecret("twenty-one-bytes-long") },
		"user name too long": func(d *bmc.Device) { d.Username = "seventeen-bytes-a" },
		"suite 0":            withSuites(17, 0),
		"odd privilege":      func(d *bmc.Device) { d.Endpoint.Privilege = "USER" },
	} {
		t.Run(name, func(t *testing.T) {
			relay := relayTo(t, startGo(t, ipmisim.Options{}))
			c := clientAt(t, relay.Addr(), change)
			_, err := c.Read(t.Context())
			assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
			assert.NotContains(t, err.Error(), "twenty-one-bytes-long")
			_, err = c.Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
			assert.NotContains(t, err.Error(), "twenty-one-bytes-long")
			assert.Zero(t, relay.Asked(), "nothing was sent")
		})
	}
}

// A name that stands for an address where no BMC may be is sent nothing. // I10
func TestNothingIsSentWhereNoBMCMayBe(t *testing.T) {
	there := must.Do(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer there.Close()
	for _, host := range []string{"127.0.0.1", "localhost"} {
		addr := net.JoinHostPort(host, strconv.Itoa(there.LocalAddr().(*net.UDPAddr).Port))
		c := clientAt(t, addr, func(d *bmc.Device) { d.Networks = &bmc.Networks{} })
		_, err := c.Read(t.Context())
		require.ErrorContains(t, err, "loopback", host)
		require.NoError(t, c.Close(t.Context()))
	}
	require.NoError(t, there.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, _, err := there.ReadFrom(make([]byte, 1))
	assert.ErrorContains(t, err, "timeout", "a datagram came")
}

// answering makes b answer cmd with code, times times.
func answering(b *ipmisim.GoBMC, cmd, code byte, times int32) {
	var left atomic.Int32
	left.Store(times)
	b.Intercept(func(c ipmisim.Command) *ipmisim.Reply {
		if c.Cmd != cmd || left.Add(-1) < 0 {
			return nil
		}
		return &ipmisim.Reply{Code: code}
	})
}

func TestCompletionCodesOfControl(t *testing.T) {
	for code, kind := range map[byte]bmc.Kind{
		0xc1: bmc.KindUnsupported, 0xd4: bmc.KindPrivilege, 0xcc: bmc.KindProtocol, 0xff: bmc.KindProtocol, 0xd6: bmc.KindProtocol,
	} {
		b := startGo(t, ipmisim.Options{})
		answering(b, cmdChassisControl, code, 1)
		_, err := clientAt(t, b.Addr()).Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, bmc.SentYes, bmctest.Failed(t, err, kind).Sent, "0x%02x: the BMC has the command, and refused it", code)
		assert.True(t, b.Power())
	}
}

func TestBusyIsWaitedOut(t *testing.T) {
	t.Parallel()
	for _, code := range []byte{0xc0, 0xc3, 0xd0, 0xd1, 0xd2} {
		for _, cmd := range []byte{cmdChassisControl, cmdSetPrivilege} {
			t.Run(fmt.Sprintf("code 0x%02x to command 0x%02x", code, cmd), func(t *testing.T) {
				t.Parallel()
				b := startGo(t, ipmisim.Options{})
				answering(b, cmd, code, 1)
				bmctest.Send(t, clientAt(t, b.Addr()), bmc.CommandOff)
				assert.False(t, b.Power())
			})
		}
	}
}

func TestBusyForEver(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{})
	c := clientAt(t, b.Addr())
	bmctest.Read(t, c)
	answering(b, cmdChassisStatus, 0xc0, 1<<30)
	c.timing.ReadTimeout = 2 * time.Second
	var err error
	pace.Until(t, "the BMC is heard, and is busy", func() bool {
		pace.Lasts(t, 2*time.Second, 450*time.Millisecond, func() { _, err = c.Read(t.Context()) })
		t.Log(err)
		return bmc.KindOf(err) == bmc.KindBusy
	})
}

func TestAlreadyInThatState(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	b.RefuseControl(0xd5)
	c := clientAt(t, b.Addr())
	for _, command := range []bmc.Command{bmc.CommandOff, bmc.CommandOn} {
		receipt := bmctest.Send(t, c, command)
		assert.True(t, receipt.Already)
	}
	assert.True(t, b.Power(), "already is a claim, not a fact")
}

func TestPrivilegeRefused(t *testing.T) {
	for code, kind := range map[byte]bmc.Kind{
		0x80: bmc.KindPrivilege, 0x81: bmc.KindPrivilege, 0x82: bmc.KindPrivilege, 0xd4: bmc.KindPrivilege,
		0xc1: bmc.KindUnsupported, 0xff: bmc.KindProtocol,
	} {
		b := startGo(t, ipmisim.Options{})
		answering(b, cmdSetPrivilege, code, 1)
		_, err := clientAt(t, b.Addr()).Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, kind, bmc.KindOf(err), "0x%02x: %v", code, err)
		assert.Zero(t, b.Counts().Off)
	}
}

func TestOnlyAbsoluteCommands(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	controls := make(chan byte, 10)
	b.Intercept(func(c ipmisim.Command) *ipmisim.Reply {
		if c.Cmd == cmdChassisControl {
			controls <- c.Data[0]
		}
		return nil
	})
	c := clientAt(t, b.Addr())
	_, err := c.Send(t.Context(), bmc.Command(0))
	assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
	bmctest.Send(t, c, bmc.CommandOff)
	bmctest.Send(t, c, bmc.CommandOn)
	assert.Equal(t, byte(0), <-controls, "power down")
	assert.Equal(t, byte(1), <-controls, "power up")
	assert.Empty(t, controls)
}

func TestStatusBytes(t *testing.T) {
	for _, c := range []struct {
		data  []byte
		state bmc.PowerState
		raw   string
		fault string
	}{
		{[]byte{0x21, 0x10, 0x40}, bmc.On, "chassis status 0x211040", ""},
		{[]byte{0x20, 0, 0}, bmc.Off, "chassis status 0x200000", ""},
		{[]byte{0x10, 0, 0, 0}, bmc.Off, "chassis status 0x10000000", "power control fault"},
		{[]byte{0x0e, 0, 0, 0, 9}, bmc.Off, "chassis status 0x0e000000", "main power fault, interlock, power overload"},
		{[]byte{0x00, 0x00}, bmc.Unknown, "chassis status 0x0000", ""},
		{nil, bmc.Unknown, "chassis status 0x", ""},
	} {
		b := startGo(t, ipmisim.Options{})
		b.Intercept(func(cmd ipmisim.Command) *ipmisim.Reply {
			if cmd.Cmd == cmdChassisStatus {
				return &ipmisim.Reply{Data: c.data}
			}
			return nil
		})
		r := bmctest.Read(t, clientAt(t, b.Addr()))
		assert.Equal(t, bmc.Reading{State: c.state, Raw: c.raw, Fault: c.fault}, bmc.Reading{State: r.State, Raw: r.Raw, Fault: r.Fault})
	}
}

// untilOff is the time of a caller who waits in vain until the host is off.
func untilOff(t *testing.T, b ipmisim.BMC) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for b.Power() && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return ctx
}

// TestLostReplyToOff loses every reply from when the host is off, as the world of the suite does:
// whether it went off cannot be told from here.
func TestLostReplyToOff(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		must.Do(c.Send(t.Context(), bmc.CommandOn))(t) // raises the privilege
		loseAnswers(b, relay, true)
		_, err := c.Send(untilOff(t, b), bmc.CommandOff)
		assert.Equal(t, bmc.SentMaybe, bmctest.Failed(t, err, bmc.KindUnreachable).Sent)
		assert.False(t, b.Power(), "it was carried out")
		loseAnswers(b, relay, false)
		assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
	})
}

// TestBMCKey: a BMC with a key of its own (K_g) is driven with it. Without it, or with
// another, the error says what is missing, after two logins at most: each leaves a session
// that only the BMC can end.
func TestBMCKey(t *testing.T) {
	const key = "a-key-of-19-bytes-x"           // ipmi_sim takes no longer one
	o := ipmisim.Options{KG: key, Sessions: 64} // on a busy machine a repeated request takes one, too
	onPeers(t, o, func(t *testing.T, _ peer, b ipmisim.BMC) {
		withKey := func(text string) func(*bmc.Device) {
			return func(d *bmc.Device) { d.BMCKey = bmc.NewSecret(text) }
		}
		c := clientAt(t, b.Addr(), withKey(key))
		bmctest.Send(t, c, bmc.CommandOff)
		assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
		require.NoError(t, c.Close(t.Context()))

		for text, want := range map[string]string{"": "set kgFile", "another-key": "kgFile is not that of the BMC"} {
			pace.Until(t, "two logins", func() bool { // one whose answer comes late says nothing about the key
				relay := relayTo(t, b)
				_, err := clientAt(t, relay.Addr(), withKey(text)).Read(t.Context())
				assert.Equal(t, bmc.KindProtocol, bmc.KindOf(err), "%v", err)
				assert.ErrorContains(t, err, want)
				assert.ErrorContains(t, err, "K_g")
				assert.NotContains(t, err.Error(), "another-key")
				return different(relay.Seen(), ipmisim.PayloadRAKP4) == 2
			})
		}
	})
}

func codes(findings []bmc.Finding) []bmc.FindingCode {
	var all []bmc.FindingCode
	for _, f := range findings {
		all = append(all, f.Code)
	}
	return all
}

func TestAudit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		bmc  func(*testing.T) ipmisim.BMC
		want []bmc.FindingCode
	}{
		{"ipmi_sim takes suite 0", func(t *testing.T) ipmisim.BMC { return startDebian(t, ipmisim.Options{}) },
			[]bmc.FindingCode{bmc.FindingCipherZero}},
		{"ipmi_sim with an account without a name",
			func(t *testing.T) ipmisim.BMC { return startDebian(t, ipmisim.Options{NullUser: true}) },
			[]bmc.FindingCode{bmc.FindingCipherZero, bmc.FindingNullUser}},
		{"go-ipmi refuses suite 0 and does not tell who exists",
			func(t *testing.T) ipmisim.BMC { return startGo(t, ipmisim.Options{NullUser: true}) }, nil},
		{"go-ipmi with suite 3 alone",
			func(t *testing.T) ipmisim.BMC { return startGo(t, ipmisim.Options{Suites: []int{3}}) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := c.bmc(t)
			relay := relayTo(t, b)
			client := clientAt(t, relay.Addr())
			found := must.Do(client.Audit(t.Context()))(t)
			assert.Equal(t, c.want, codes(found))
			for _, d := range relay.Seen() {
				if d.Payload() == ipmisim.PayloadRAKP3 {
					assert.Len(t, d.Data, headerLen+8, "a refusal: nothing of a password in it")
				}
				assert.NotEqual(t, ipmisim.PayloadIPMI, d.Payload(), "never in a session")
			}
			assert.True(t, b.Power())
		})
	}
}

// TestAuditLeavesNoSession: BMCs have as few as four, and here one is in use.
func TestAuditLeavesNoSession(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	c := clientAt(t, b.Addr())
	pace.Until(t, "the session in use was left alone", func() bool {
		before := bmctest.Read(t, c)
		for range 4 {
			must.Do(c.Audit(t.Context()))(t)
		}
		assert.Eventually(t, func() bool { return b.Sessions() == 1 }, pace.Tries, 5*time.Millisecond)
		after := bmctest.Read(t, c)
		return before.Session == after.Session
	})
}

// TestSilenceIsNoFinding: a BMC may drop what it does not allow, but one that
// answers nothing at all was not audited.
func TestSilenceIsNoFinding(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	relay.Filter(losing(func(d ipmisim.Datagram) bool {
		zero := d.Payload() == ipmisim.PayloadOpenRequest && d.Data[headerLen+12] == 0
		return zero || d.Payload() == ipmisim.PayloadRAKP1
	}))
	found := must.Do(clientAt(t, relay.Addr()).Audit(t.Context()))(t)
	assert.Empty(t, found)

	c := New(hostAt(t, silent(t)), bmc.Timing{ReadTimeout: 300 * time.Millisecond, SendTimeout: time.Second})
	_, err := c.Audit(t.Context())
	assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
}

func TestAuditWithoutASessionLeft(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	require.NoError(t, b.Exhaust())
	_, err := clientAt(t, b.Addr()).Audit(t.Context())
	assert.Equal(t, bmc.KindSessions, bmc.KindOf(err), "%v", err)
}

func TestAuditOfACancelledCaller(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := clientAt(t, b.Addr()).Audit(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}
