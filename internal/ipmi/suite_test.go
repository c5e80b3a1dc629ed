package ipmi

import (
	"cmp"
	"context"
	"crypto/aes"
	"errors"
	"os"
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

// otherGUID is that of another machine.
const otherGUID = "4c4c4544-0011-0000-8000-00000000beef"

var (
	forgets        = "a BMC forgets a handshake that was cut off by itself, or for the next one"
	oneBit         = "chassis status has one bit for power"
	noConnections  = "UDP has no connections; see the hang"
	datagrams      = "a datagram is whole"
	asksNobody     = "this BMC does not tell its sessions"
	onlyFromConfig = "this BMC takes its GUID when it starts"
	obeys          = "this BMC carries out whatever it is told"
)

func TestSuiteOverGoIPMI(t *testing.T) {
	t.Parallel()
	for _, p := range peers[:2] {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			bmctest.Run(t, bmctest.Driver{
				New:    func(t *testing.T) *bmctest.World { return goWorld(t, p) },
				Cannot: map[string]string{"Transitional": oneBit, "HalfOpen": noConnections, "CloseSilently": noConnections, "CutBodies": datagrams, "CutLogins": forgets},
			})
		})
	}
}

func TestSuiteOverDebian(t *testing.T) {
	suiteOver(t, func(t *testing.T) ipmisim.Faults { return startDebian(t, ipmisim.Options{}) })
}

func TestSuiteOverPyghmi(t *testing.T) {
	suiteOver(t, func(t *testing.T) ipmisim.Faults { return startPyghmi(t, ipmisim.Options{}) })
}

// suiteOver is the suite over a BMC that is a program.
func suiteOver(t *testing.T, start func(t *testing.T) ipmisim.Faults) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			w, _ := worldOf(t, start(t))
			return w
		},
		Cannot: map[string]string{
			"Transitional": oneBit, "HalfOpen": noConnections, "CloseSilently": noConnections, "CutBodies": datagrams, "Sessions": asksNobody, "CutLogins": asksNobody,
			"ChangeIdentity": onlyFromConfig, "RefuseSame": obeys,
		},
	})
}

func goWorld(t *testing.T, p peer) *bmctest.World {
	b := p.start(t, ipmisim.Options{}).(*ipmisim.GoBMC)
	w, _ := worldOf(t, b)
	w.Sessions = b.Sessions
	w.RefuseSame = func(refuse bool) error {
		b.RefuseControl(map[bool]byte{true: codePresentState}[refuse])
		return nil
	}
	w.ChangeIdentity = func() error {
		if err := b.SetUUID(otherGUID); err != nil {
			return err
		}
		return b.Restart()
	}
	return w
}

func worldOf(t *testing.T, b ipmisim.Faults) (*bmctest.World, *ipmisim.Relay) {
	relay := relayTo(t, b)
	return &bmctest.World{
		Open:   func(d bmc.Device) (bmc.Power, error) { return New(d, timing), nil },
		Device: hostAt(t, relay.Addr()),
		UUID:   guid,
		On:     b.Power, SetPower: b.SetPower,
		IgnoreOff: b.IgnoreOff, LateOff: b.LateOff, BackOn: b.BackOn, Hang: b.Hang, Restart: b.Restart,
		Bad: func(bad bool) error {
			n := ipmisim.Network{Seed: 7}
			if bad {
				n.Loss, n.Double, n.Reorder = 0.1, 0.1, 0.1
			}
			relay.Network(withoutDoubles(b, n))
			return nil
		},
		LoseAnswer: func(lose bool) error { loseAnswers(b, relay, lose); return nil },
		Logins: func() int {
			// Each login of the suite's case ends in a RAKP 3, which may still be on its way.
			for end := time.Now().Add(pace.Hang); failedLogins(relay.Seen()) == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			return failedLogins(relay.Seen())
		},
	}, relay
}

// failedLogins is how many failed logins a BMC can count whose password is another one:
// a RAKP 3 with a proof of our password, or one that says that the proof in RAKP 2 is wrong.
func failedLogins(seen []ipmisim.Datagram) (n int) {
	for _, d := range seen {
		if d.Payload() == ipmisim.PayloadRAKP3 && (len(d.Data) > headerLen+8 || d.Data[headerLen+1] == statusWrongCode) {
			n++
		}
	}
	return n
}

// loseAnswers loses what the BMC says from when the host is off: the answer to the command,
// however often a slow BMC was asked for what comes before it.
func loseAnswers(b ipmisim.BMC, relay *ipmisim.Relay, lose bool) {
	if !lose {
		relay.Filter(nil)
		return
	}
	relay.Filter(losing(func(d ipmisim.Datagram) bool { return d.FromBMC && !b.Power() }))
}

func TestMain(m *testing.M) {
	pace.Together(8) // they wait for timeouts most of the time
	os.Exit(m.Run())
}

const guid = "4c4c4544-0011-0000-8000-00000000cafe"

// guidText is guid as a Reading shows it.
const guidText = "4c4c4544001100008000" + "00000000cafe"

// timing is generous: a test that waits for it in vain is wrong, not slow.
var timing = bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute}

func startGo(t *testing.T, o ipmisim.Options) *ipmisim.GoBMC {
	t.Helper()
	o.UUID = cmp.Or(o.UUID, guid)
	b := must.Do(again(o, func() (*ipmisim.GoBMC, error) { return ipmisim.StartGo(t.Context(), o) }))(t)
	t.Cleanup(b.Stop)
	return b
}

func startDebian(t *testing.T, o ipmisim.Options) *ipmisim.DebianBMC {
	t.Helper()
	o.UUID = cmp.Or(o.UUID, guid)
	b, err := again(o, func() (*ipmisim.DebianBMC, error) { return ipmisim.StartDebian(t.Context(), o) })
	if errors.Is(err, ipmisim.ErrNoDebianSim) {
		bmctest.Missing(t, err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	return b
}

// startPyghmi starts a BMC of pyghmi, which must not have ended when the test ends.
func startPyghmi(t *testing.T, o ipmisim.Options) *ipmisim.PyghmiBMC {
	t.Helper()
	if o.Operator {
		t.Skip("pyghmi has no accounts of OPERATOR")
	}
	o.UUID = cmp.Or(o.UUID, guid)
	// The context of the test ends before its cleanup.
	b, err := again(o, func() (*ipmisim.PyghmiBMC, error) { return ipmisim.StartPyghmi(context.Background(), o) })
	if errors.Is(err, ipmisim.ErrNoPyghmi) {
		bmctest.Missing(t, err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		log, ended := b.Ended()
		assert.False(t, ended, "what was sent ended the BMC: %s", log)
		b.Stop()
	})
	return b
}

// again starts a BMC, if need be several times when its port is given: a client
// of another test may have been given that port for a moment.
func again[B any](o ipmisim.Options, start func() (B, error)) (b B, err error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if b, err = start(); err == nil || o.Addr == "" || time.Now().After(end) {
			return b, err
		}
	}
}

// peer is one kind of BMC under test.
type peer struct {
	name  string
	suite int
	start func(*testing.T, ipmisim.Options) ipmisim.BMC
}

var peers = []peer{
	{"go-ipmi suite 3", 3, func(t *testing.T, o ipmisim.Options) ipmisim.BMC {
		o.Suites = []int{3}
		return startGo(t, o)
	}},
	{"go-ipmi suite 17", 17, func(t *testing.T, o ipmisim.Options) ipmisim.BMC {
		o.Suites = []int{17}
		return startGo(t, o)
	}},
	{"ipmi_sim suite 3", 3, func(t *testing.T, o ipmisim.Options) ipmisim.BMC { return startDebian(t, o) }},
	{"pyghmi suite 3", 3, func(t *testing.T, o ipmisim.Options) ipmisim.BMC { return startPyghmi(t, o) }},
}

// hostAt is a host whose BMC is at addr, with the account of the simulators.
func hostAt(t *testing.T, addr string) bmc.Device {
	t.Helper()
	e := must.Do(bmc.ParseEndpoint("ipmi://" + addr))(t)
	return bmc.Device{Driver: bmc.DriverIPMI, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret")}
}

// clientAt is a client of the BMC at addr, with these changes of its entry, that closes with the test.
func clientAt(t *testing.T, addr string, changes ...func(*bmc.Device)) *Client {
	t.Helper()
	d := hostAt(t, addr)
	for _, change := range changes {
		change(&d)
	}
	c := New(d, timing)
	t.Cleanup(c.drop)
	return c
}

func withSuites(ids ...int) func(*bmc.Device) { return func(d *bmc.Device) { d.CipherSuites = ids } }

func withPassword(text string) func(*bmc.Device) {
	return func(d *bmc.Device) { d.Password = bmc.NewSecret(text) }
}

func asAdministrator(d *bmc.Device) { d.Endpoint.Privilege = "ADMINISTRATOR" }

func ignoringUUID(d *bmc.Device) { d.IgnoreUUID = true }

// closes closes the session of c. No answer in the time that a Close may take is no
// defect of the client: the machine may be busy.
func closes(t *testing.T, c *Client) {
	t.Helper()
	begun := time.Now()
	err := c.Close(t.Context())
	if bmc.KindOf(err) == bmc.KindUnreachable && time.Since(begun) >= closeTimeout {
		return
	}
	require.NoError(t, err)
}

func relayTo(t *testing.T, b ipmisim.BMC) *ipmisim.Relay {
	t.Helper()
	r := must.Do(ipmisim.StartRelay(b.Addr()))(t)
	t.Cleanup(r.Stop)
	return r
}

func losing(lost func(ipmisim.Datagram) bool) func(ipmisim.Datagram) []ipmisim.Datagram {
	return func(d ipmisim.Datagram) []ipmisim.Datagram {
		if lost(d) {
			return nil
		}
		return []ipmisim.Datagram{d}
	}
}

// proofs is how many datagrams hold a proof of a password.
func proofs(seen []ipmisim.Datagram) (n int) {
	for _, d := range seen {
		if d.Payload() == ipmisim.PayloadRAKP3 && len(d.Data) > headerLen+8 {
			n++
		}
	}
	return n
}

// withoutDoubles is n for the BMC b. pyghmi may take a doubled Open Session Request for
// two, and let the first answer to RAKP 1 when RAKP 3 goes to the second, which ends it.
func withoutDoubles(b ipmisim.BMC, n ipmisim.Network) ipmisim.Network {
	if _, pyghmi := b.(*ipmisim.PyghmiBMC); pyghmi {
		n.Double = 0
	}
	return n
}

// TestRepeatedCommand: a BMC drops what it has seen, so each try is new in its
// session sequence number and its vector, and the same command inside.
func TestRepeatedCommand(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	c := clientAt(t, relay.Addr())
	bmctest.Read(t, c)
	var first int
	pace.Until(t, "no new session on a busy machine", func() bool {
		before, lost := c.session, 0
		first = len(relay.Seen())
		relay.Filter(losing(func(ipmisim.Datagram) bool { lost++; return lost <= 2 }))
		bmctest.Read(t, c)
		return c.session == before
	})

	sequences, vectors, commands := map[uint32]bool{}, map[[aes.BlockSize]byte]bool{}, map[string]bool{}
	for _, d := range relay.Seen()[first:] {
		if d.FromBMC {
			continue
		}
		p := must.Do(parsePacket(d.Data))(t)
		if p.sessionID != c.session.bmcID { // a late one of the session that a busy machine lost
			continue
		}
		message, n, err := c.session.seal.open(d.Data, c.session.bmcID)
		require.NoError(t, err)
		sequences[n], vectors[[aes.BlockSize]byte(p.payload)], commands[string(message)] = true, true, true
	}
	assert.Len(t, sequences, 3)
	assert.Len(t, vectors, 3)
	assert.Len(t, commands, 1)
}

// slowBMC is a BMC that works on one command after the other, and needs long for each.
type slowBMC interface {
	ipmisim.BMC
	Slow(d time.Duration) error
}

// shippedTiming is what the daemon gives a BMC by default.
var shippedTiming = bmc.Timing{ReadTimeout: 5 * time.Second, SendTimeout: 10 * time.Second}

// TestSerialBMC: a BMC that needs two seconds for each command, as virtualbmc with a slow
// libvirt, is read and switched in time, over one session. No command is sent while it
// works on one, because it would work on that one too.
func TestSerialBMC(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) slowBMC{
		"pyghmi":   func(t *testing.T) slowBMC { return startPyghmi(t, ipmisim.Options{}) },
		"ipmi_sim": func(t *testing.T) slowBMC { return startDebian(t, ipmisim.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			require.NoError(t, b.Slow(2*time.Second))
			costs(t, []int{4, 1, 2, 1}, func() (asked []int) { // status, status, off, status
				relay := relayTo(t, b)
				c := clientAt(t, relay.Addr(), withSuites(3))
				c.timing = shippedTiming
				defer c.drop() // one play after the other
				at := 0
				took := func(err error) {
					now := relay.Asked()
					sent := now - at
					if err != nil {
						sent += 100 // a busy machine; another attempt
					}
					asked, at = append(asked, sent), now
				}
				for range 2 {
					_, err := c.Read(t.Context())
					took(err)
				}
				_, sent := c.Send(t.Context(), bmc.CommandOff)
				took(sent)
				r, err := c.Read(t.Context())
				took(err)
				if sent == nil && err == nil {
					assert.Equal(t, bmc.Off, r.State)
				}
				return asked
			})
		})
	}
}

// TestSlowerThanTheFirstWait: a BMC that answers its first command later than one that
// forgot its session would, keeps the session.
func TestSlowerThanTheFirstWait(t *testing.T) {
	t.Parallel()
	b := startPyghmi(t, ipmisim.Options{})
	require.NoError(t, b.Slow(4*time.Second))
	pace.Until(t, "one handshake", func() bool {
		relay := relayTo(t, b)
		assert.Equal(t, bmc.On, bmctest.Read(t, clientAt(t, relay.Addr(), withSuites(3))).State)
		return len(consoles(relay.Seen())) == 1
	})
}

// TestPatience is how long each command waits before it is repeated.
func TestPatience(t *testing.T) {
	ctx := t.Context()
	var c commandTimes
	tries, wait := c.patience(ctx, chassisStatus)
	assert.Equal(t, newCommandTries, tries)
	assert.Equal(t, newCommandWait, wait, "nothing is known of the BMC")

	c.record(chassisStatus, 5*time.Millisecond)
	tries, wait = c.patience(ctx, chassisStatus)
	assert.Equal(t, commandTries, tries)
	assert.Equal(t, firstWait, wait, "it answers this command at once")
	_, wait = c.patience(ctx, setPrivilege(3))
	assert.Equal(t, newCommandWait, wait, "which says nothing about another")

	c.record(chassisStatus, 2500*time.Millisecond)
	_, wait = c.patience(ctx, chassisStatus)
	assert.Equal(t, 5*time.Second, wait)
	_, wait = c.patience(ctx, setPrivilege(3))
	assert.Equal(t, 5*time.Second, wait, "a slow BMC is slow with all")

	c.record(chassisStatus, time.Minute)
	_, wait = c.patience(ctx, chassisStatus)
	assert.Equal(t, longestWait, wait)
}

// TestNoStorm: what a client sends to a BMC that answers nothing is bounded, whatever it
// waits for. The number is that of the waits, which a busy machine only makes longer.
func TestNoStorm(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		if k.fromBMC {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			relay := relayTo(t, startGo(t, ipmisim.Options{}))
			relay.Filter(losing(func(d ipmisim.Datagram) bool { return d.Payload() == k.payload }))
			c := clientAt(t, relay.Addr())
			c.timing = shippedTiming
			_, err := c.Read(t.Context())
			assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
			assert.LessOrEqual(t, relay.Asked(), 25)
		})
	}
}
