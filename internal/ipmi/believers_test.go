package ipmi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bmc-toolbox/bmclib/v2"
	goipmi "github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// clients are those that a user would take in place of ours. Each asks for the
// power state with cipher suite 3, the account and the privilege of our own, and
// gives "on", "off" or what it said instead.
var clients = []struct {
	name    string
	command string // what has to be installed for it
	status  func(ctx context.Context, host, port string) (string, error)
	want    string // when a forged off reaches it
}{
	{"fenced", "", oursStatus, "on"},
	{"ipmitool", "ipmitool", ipmitoolStatus, "off"},
	{"bmclib with ipmitool", "ipmitool", bmclibStatus, "off"},
	{"fence_ipmilan", "fence_ipmilan", fenceStatus, "off"},
	{"go-ipmi", "", goIPMIStatus, "off"},
}

// TestForgedOffBesideOthers is why this package exists. A man in the middle who
// knows no password answers in the clear, with the session id he saw on the wire,
// before he passes the question on. The host is on; the four clients that others
// use say off. // I1
func TestForgedOffBesideOthers(t *testing.T) {
	for _, framing := range []string{"RMCP+ plaintext", "IPMI 1.5 framing"} {
		for _, c := range clients {
			t.Run(framing+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				if c.command != "" {
					if _, err := exec.LookPath(c.command); err != nil {
						missing(t, c.command+" is not installed")
					}
				}
				b := startDebian(t, ipmisim.Options{})
				relay := relayTo(t, b)
				host, port, err := net.SplitHostPort(relay.Addr())
				require.NoError(t, err)
				status := func() (said string) { // some give up after a few seconds
					pace.Until(t, c.name+" has an answer", func() bool {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						said, err = c.status(ctx, host, port)
						if err != nil {
							t.Log(said, err)
						}
						return err == nil
					})
					return said
				}
				require.Equal(t, "on", status(), "on an honest network")

				relay.Filter(liar(forgeries[framing]))
				assert.Equal(t, c.want, status())
				assert.True(t, b.Power(), "the host is on")
			})
		}
	}
}

// liar answers each command in a session with forged offs, one for each sequence
// number that it may have, and then lets it pass.
func liar(forge func(consoleID, sequence uint32, message []byte) []byte) func(ipmisim.Datagram) []ipmisim.Datagram {
	var console uint32
	return func(d ipmisim.Datagram) []ipmisim.Datagram {
		if d.FromBMC {
			return []ipmisim.Datagram{d}
		}
		var out []ipmisim.Datagram
		switch d.Payload() {
		case ipmisim.PayloadOpenRequest:
			console = binary.LittleEndian.Uint32(d.Data[headerLen+4:])
		case ipmisim.PayloadIPMI:
			if binary.LittleEndian.Uint32(d.Data[6:]) != 0 {
				for rqSeq := range 64 {
					out = append(out, d.Reply(forge(console, uint32(1+rqSeq), offReply(byte(rqSeq)))))
				}
			}
		}
		return append(out, d)
	}
}

func oursStatus(ctx context.Context, host, port string) (string, error) {
	n, err := strconv.Atoi(port)
	if err != nil {
		return "", err
	}
	d := simulated(host, n)
	d.CipherSuites = []int{3}
	c := New(d, timing)
	defer c.drop()
	r, err := c.Read(ctx)
	return strings.ToLower(r.State.String()), err
}

// onOff takes "Chassis Power is on" and the like.
func onOff(text string) string {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return "nothing"
	}
	switch last := words[len(words)-1]; last {
	case "on", "off":
		return last
	}
	return text
}

func ipmitoolStatus(ctx context.Context, host, port string) (string, error) {
	cmd := exec.CommandContext(ctx, "ipmitool", "-I", "lanplus", "-C", "3", "-L", "OPERATOR",
		"-H", host, "-p", port, "-U", "admin", "-E", "chassis", "power", "status")
	cmd.Env = append(os.Environ(), "IPMI_PASSWORD=secret")
	out, err := cmd.CombinedOutput()
	return onOff(string(out)), err
}

func bmclibStatus(ctx context.Context, host, port string) (string, error) {
	c := bmclib.NewClient(host, "admin", "secret", bmclib.WithIpmitoolPort(port), bmclib.WithIpmitoolCipherSuite("3"))
	c.Registry.Drivers = c.Registry.For("ipmitool")
	text, err := c.GetPowerState(ctx)
	return onOff(text), err
}

func fenceStatus(ctx context.Context, host, port string) (string, error) {
	cmd := exec.CommandContext(ctx, "fence_ipmilan")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		"ip=%s\nipport=%s\nusername=admin\npassword=secret\nlanplus=1\ncipher=3\nprivlvl=operator\naction=status\n", host, port))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // the agents' word for off
		err = nil
	}
	return onOff(string(out)), err
}

func goIPMIStatus(ctx context.Context, host, port string) (string, error) {
	n, err := strconv.Atoi(port)
	if err != nil {
		return "", err
	}
	c, err := goipmi.NewClient(host, n, "admin", "secret")
	if err != nil {
		return "", err
	}
	c.WithInterface(goipmi.InterfaceLanplus).WithCipherSuiteID(types.CipherSuiteID(3)).
		WithMaxPrivilegeLevel(types.PrivilegeLevelOperator).WithTimeout(5 * time.Second)
	if err := c.Connect(ctx); err != nil {
		return "", err
	}
	defer func() { _ = c.Close(ctx) }() // its own business
	r, err := c.GetChassisStatus(ctx)
	if err != nil {
		return "", err
	}
	if r.PowerIsOn {
		return "on", nil
	}
	return "off", nil
}
