package ipmi

import (
	"cmp"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

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
	b, err := again(o, func() (*ipmisim.GoBMC, error) { return ipmisim.StartGo(t.Context(), o) })
	require.NoError(t, err)
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
	e, err := bmc.ParseEndpoint("ipmi://" + addr)
	require.NoError(t, err)
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

// relayTo is a relay to the BMC b.
func relayTo(t *testing.T, b ipmisim.BMC) *ipmisim.Relay {
	t.Helper()
	r, err := ipmisim.StartRelay(b.Addr())
	require.NoError(t, err)
	t.Cleanup(r.Stop)
	return r
}

// losing is a network that loses these datagrams.
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
