package ipmi

import (
	"context"
	"crypto/aes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bmc-toolbox/bmclib/v2"
	goipmi "github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// offReply is the message "the host is off" for every 6-bit sequence number a
// liar may have to guess.
func offReply(rqSeq byte) []byte {
	b := []byte{addrConsole, (netFnChassis + 1) << 2}
	b = append(b, checksum(b))
	b = append(b, addrBMC, rqSeq<<2, cmdChassisStatus, codeOK, 0x00, 0x00, 0x00)
	return append(b, checksum(b[3:]))
}

// forgeries are ways to wrap offReply without the keys of the session, given
// the console's session id as seen on the wire.
var forgeries = map[string]func(consoleID uint32, sequence uint32, message []byte) []byte{
	"IPMI 1.5 framing": func(id, n uint32, m []byte) []byte {
		b := []byte{0x06, 0x00, 0xff, 0x07, 0x00}
		b = binary.LittleEndian.AppendUint32(b, n)
		b = binary.LittleEndian.AppendUint32(b, id)
		return append(append(b, byte(len(m))), m...)
	},
	"IPMI 1.5 framing without session": func(_, _ uint32, m []byte) []byte {
		b := []byte{0x06, 0x00, 0xff, 0x07, 0x00, 0, 0, 0, 0, 0, 0, 0, 0}
		return append(append(b, byte(len(m))), m...)
	},
	"RMCP+ plaintext": func(id, n uint32, m []byte) []byte {
		return append(appendHeader(nil, payloadIPMI, id, n, len(m)), m...)
	},
	"RMCP+ plaintext outside any session": func(_, _ uint32, m []byte) []byte {
		return append(appendHeader(nil, payloadIPMI, 0, 0, len(m)), m...)
	},
	"RMCP+ authenticated bit without a code": func(id, n uint32, m []byte) []byte {
		return append(appendHeader(nil, payloadIPMI|flagAuthenticated, id, n, len(m)), m...)
	},
	"RMCP+ both bits, code of zeros": func(id, n uint32, m []byte) []byte {
		s, _ := newSealer(suites[0], make([]byte, 32), make([]byte, 32))
		b := s.seal(id, n, [aes.BlockSize]byte{}, m)
		clear(b[len(b)-s.suite.codeLen:])
		return b
	},
	"RMCP+ keys of another session": func(id, n uint32, m []byte) []byte {
		s, _ := newSealer(suites[0], make([]byte, 32), make([]byte, 32))
		return s.seal(id, n, [aes.BlockSize]byte{}, m)
	},
	"RMCP+ authentic for suite 3, no key": func(id, n uint32, m []byte) []byte {
		s, _ := newSealer(suites[1], nil, make([]byte, 16))
		return s.seal(id, n, [aes.BlockSize]byte{}, m)
	},
}

// TestForgedOff lets a man in the middle answer each status command with "off", for every
// sequence number, before the BMC does. The host is on. // I1
func TestForgedOff(t *testing.T) {
	t.Parallel()
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
				relay := relayTo(t, b)
				lies, lied := liar(forge), false
				relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
					out := lies(d)
					lied = lied || len(out) > 1
					return out
				})
				r := bmctest.Read(t, clientAt(t, relay.Addr()))
				relay.Filter(nil) // which is not at work any more
				assert.True(t, lied)
				assert.Equal(t, bmc.On, r.State)
			})
		})
	}
}

// TestAlteredReply turns the genuine "on" into "off" without any key: a bit
// flipped in the initialisation vector flips the same bit of the first block,
// here that of the power state and those of the checksum that must follow.
func TestAlteredReply(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		bmctest.Read(t, c)
		altered := false
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if altered || !d.FromBMC {
				return []ipmisim.Datagram{d}
			}
			altered = true
			var lies []ipmisim.Datagram
			const power = 7
			for _, sum := range []int{10, 11} { // after three or four bytes of data
				for mask := 1; mask < 256; mask = mask<<1 | 1 { // that add one
					lie := append([]byte(nil), d.Data...)
					lie[headerLen+power] ^= 0x01
					lie[headerLen+sum] ^= byte(mask)
					lies = append(lies, d.With(lie))
				}
			}
			return lies
		})
		r := bmctest.Read(t, c)
		relay.Filter(nil)
		assert.True(t, altered)
		assert.Equal(t, bmc.On, r.State)
	})
}

// TestReplayedOff answers a status command with genuine replies from the time
// when the host was off, in the same session.
func TestReplayedOff(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{Off: true}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		for range 64 { // each sequence number a command can have was used
			r := bmctest.Read(t, c)
			require.Equal(t, bmc.Off, r.State)
		}
		var old [][]byte
		for _, d := range relay.Seen() {
			if d.FromBMC {
				old = append(old, d.Data)
			}
		}
		require.NoError(t, b.SetPower(true))
		swallowed := false
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if swallowed || d.FromBMC {
				return []ipmisim.Datagram{d}
			}
			swallowed = true
			var replays []ipmisim.Datagram
			for _, data := range old {
				replays = append(replays, d.Reply(data))
			}
			return replays
		})
		r := bmctest.Read(t, c)
		relay.Filter(nil)
		assert.True(t, swallowed)
		assert.Equal(t, bmc.On, r.State)
	})
}

// TestWeakAlgorithmsOfferedBack lets the BMC answer with cipher suite 0.
func TestWeakAlgorithmsOfferedBack(t *testing.T) {
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if d.Payload() == ipmisim.PayloadOpenResponse {
			for _, at := range []int{16, 24, 32} {
				d.Data[headerLen+at] = 0
			}
		}
		return []ipmisim.Datagram{d}
	})
	c := clientAt(t, relay.Addr())
	_, err := c.Read(t.Context())
	assert.Equal(t, bmc.KindProtocol, bmc.KindOf(err), "%v", err)
	for _, d := range relay.Seen() {
		if !d.FromBMC && d.Payload() != ipmisim.PayloadOpenRequest {
			assert.Len(t, d.Data, headerLen+8, "nothing of RAKP but a refusal")
		}
	}
	assert.Equal(t, 2, different(relay.Seen(), ipmisim.PayloadOpenRequest), "suites 17 and 3")
}

// TestFloodOfJunk keeps a client busy with datagrams that are not answers.
func TestFloodOfJunk(t *testing.T) {
	t.Parallel()
	var flood atomic.Bool
	flood.Store(true)
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if d.FromBMC {
			return nil
		}
		go func() {
			for flood.Load() {
				relay.Send(d.Reply(d.Data))
			}
		}()
		return nil
	})
	h := hostAt(t, relay.Addr())
	_, err := New(h, bmc.Timing{ReadTimeout: 500 * time.Millisecond, SendTimeout: time.Second}).Read(t.Context())
	flood.Store(false)
	assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err))
}

// TestHeldBackOff lets a man in the middle hold back genuine replies from the time
// when the host was off, and give them in place of the answer to a later question:
// after one command, and when each number that a command can have was used. // I1
func TestHeldBackOff(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string]int{"one": 1, "as many as there are numbers": 64, "more": 70} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
				relay := relayTo(t, b)
				c := clientAt(t, relay.Addr())
				bmctest.Read(t, c)
				require.NoError(t, b.SetPower(false))
				var held [][]byte
				arrived := make(chan struct{}, 2*commands)
				relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
					if !d.FromBMC {
						return []ipmisim.Datagram{d}
					}
					held = append(held, d.Data)
					arrived <- struct{}{}
					return nil
				})
				for range commands {
					ctx, cancel := context.WithCancel(t.Context())
					go func() {
						<-arrived
						cancel()
					}()
					_, err := c.Read(ctx)
					require.Error(t, err)
				}
				require.NoError(t, b.SetPower(true))
				relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
					if d.FromBMC || d.Payload() != ipmisim.PayloadIPMI || held == nil {
						return []ipmisim.Datagram{d}
					}
					var late []ipmisim.Datagram
					for _, data := range held {
						late = append(late, d.Reply(data))
					}
					held = nil
					return late
				})
				assert.Equal(t, bmc.On, bmctest.Read(t, c).State)
				relay.Filter(nil)
				assert.Nil(t, held, "the old replies were given")
			})
		})
	}
}

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
	t.Parallel()
	for _, framing := range []string{"RMCP+ plaintext", "IPMI 1.5 framing"} {
		for _, c := range clients {
			t.Run(framing+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				if c.command != "" {
					if _, err := exec.LookPath(c.command); err != nil {
						bmctest.Missing(t, c.command+" is not installed")
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
	e, err := bmc.ParseEndpoint("ipmi://" + net.JoinHostPort(host, port))
	if err != nil {
		return "", err
	}
	c := New(bmc.Device{Driver: bmc.DriverIPMI, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"), CipherSuites: []int{3}}, timing)
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
