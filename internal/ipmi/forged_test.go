package ipmi

import (
	"crypto/aes"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
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

// TestForgedOff lets a man in the middle swallow a status command and answer
// "off" in its place, for every sequence number. The host is on. // I1
func TestForgedOff(t *testing.T) {
	t.Parallel()
	for name, forge := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
				relay := relayTo(t, b)
				c := clientAt(t, relay.Addr())
				_, err := c.Read(t.Context())
				require.NoError(t, err)

				var console uint32
				for _, d := range relay.Seen() {
					if d.Payload() == ipmisim.PayloadOpenRequest {
						console = binary.LittleEndian.Uint32(d.Data[headerLen+4:])
					}
				}
				swallowed := false
				relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
					if swallowed || d.FromBMC {
						return []ipmisim.Datagram{d}
					}
					swallowed = true
					var lies []ipmisim.Datagram
					for rqSeq := range 64 {
						lies = append(lies, d.Reply(forge(console, uint32(2+rqSeq%8), offReply(byte(rqSeq)))))
					}
					return lies
				})
				r, err := c.Read(t.Context())
				require.NoError(t, err)
				assert.True(t, swallowed)
				assert.Equal(t, bmc.On, r.State)
			})
		})
	}
}

// TestAlteredReply turns the genuine "on" into "off" without any key: a bit
// flipped in the initialisation vector flips the same bit of the first block,
// here that of the power state and those of the checksum that must follow.
func TestAlteredReply(t *testing.T) {
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		_, err := c.Read(t.Context())
		require.NoError(t, err)
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
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.True(t, altered)
		assert.Equal(t, bmc.On, r.State)
	})
}

// TestReplayedOff answers a status command with genuine replies from the time
// when the host was off, in the same session.
func TestReplayedOff(t *testing.T) {
	onPeers(t, ipmisim.Options{Off: true}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		for range 64 { // each sequence number a command can have was used
			r, err := c.Read(t.Context())
			require.NoError(t, err)
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
		r, err := c.Read(t.Context())
		require.NoError(t, err)
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
