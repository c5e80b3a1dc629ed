package ipmi

import (
	"crypto/aes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
)

// TestRepeatedCommand: a BMC drops what it has seen, so each try is new in its
// session sequence number and its vector, and the same command inside.
func TestRepeatedCommand(t *testing.T) {
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	c := clientAt(t, relay.Addr())
	_, err := c.Read(t.Context())
	require.NoError(t, err)
	first := len(relay.Seen())
	lost := 0
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if lost++; lost <= 2 {
			return nil
		}
		return []ipmisim.Datagram{d}
	})
	_, err = c.Read(t.Context())
	require.NoError(t, err)

	sequences, vectors, commands := map[uint32]bool{}, map[[aes.BlockSize]byte]bool{}, map[string]bool{}
	for _, d := range relay.Seen()[first:] {
		if d.FromBMC {
			continue
		}
		message, n, err := c.session.seal.open(d.Data, c.session.bmcID)
		require.NoError(t, err)
		p, err := parsePacket(d.Data)
		require.NoError(t, err)
		sequences[n], vectors[[aes.BlockSize]byte(p.payload)], commands[string(message)] = true, true, true
	}
	assert.Len(t, sequences, 3)
	assert.Len(t, vectors, 3)
	assert.Len(t, commands, 1)
}

// TestHandshakeIsFresh: nothing of a handshake repeats, so no answer to an
// earlier one can pass for an answer to this one.
func TestHandshakeIsFresh(t *testing.T) {
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	c := clientAt(t, relay.Addr())
	const sessions = 8
	for range sessions {
		_, err := c.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.Close(t.Context()))
	}
	ids, numbers, tags := map[uint32]bool{}, map[string]bool{}, map[byte]bool{}
	for _, d := range relay.Seen() {
		switch d.Payload() {
		case ipmisim.PayloadOpenRequest:
			ids[binary.LittleEndian.Uint32(d.Data[headerLen+4:])] = true
			tags[d.Data[headerLen]] = true
		case ipmisim.PayloadRAKP1:
			numbers[string(d.Data[headerLen+8:headerLen+24])] = true
		}
	}
	assert.Len(t, ids, sessions)
	assert.Len(t, numbers, sessions)
	assert.Greater(t, len(tags), 2, "tags are random too")
}

// TestAlteredHandshake flips one bit in one answer of the first handshake. That
// answer is not believed: either it is dropped and asked for again, or a code
// fails.
func TestAlteredHandshake(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload int
		at      int
		kind    bmc.Kind
	}{
		{"tag of open session response", ipmisim.PayloadOpenResponse, 0, ""},
		{"our id in open session response", ipmisim.PayloadOpenResponse, 4, ""},
		{"BMC's id in open session response", ipmisim.PayloadOpenResponse, 8, ""}, // RAKP 2 refuses, then anew
		{"tag of RAKP 2", ipmisim.PayloadRAKP2, 0, ""},
		{"our id in RAKP 2", ipmisim.PayloadRAKP2, 4, ""},
		{"random number in RAKP 2", ipmisim.PayloadRAKP2, 8, bmc.KindAuth},
		{"GUID in RAKP 2", ipmisim.PayloadRAKP2, 24, bmc.KindAuth},
		{"code in RAKP 2", ipmisim.PayloadRAKP2, 40, bmc.KindAuth},
		{"tag of RAKP 4", ipmisim.PayloadRAKP4, 0, ""},
		{"code in RAKP 4", ipmisim.PayloadRAKP4, 8, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			relay := relayTo(t, startGo(t, ipmisim.Options{}))
			altered := false
			relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
				if !altered && d.Payload() == c.payload {
					altered = true
					d.Data[headerLen+c.at] ^= 0x04
				}
				return []ipmisim.Datagram{d}
			})
			_, err := clientAt(t, relay.Addr()).Read(t.Context())
			assert.Equal(t, c.kind, bmc.KindOf(err), "%v", err)
			answers := 0
			for _, d := range relay.Seen() {
				if d.Payload() == c.payload && d.Data[headerLen+1] == 0 { // not to a refusal
					answers++
				}
			}
			if c.kind == "" {
				assert.GreaterOrEqual(t, answers, 2, "the altered one did not do")
			}
		})
	}
}

// TestRefusalsOfTheHandshake lets the BMC refuse each message with each status.
func TestRefusalsOfTheHandshake(t *testing.T) {
	for _, c := range []struct {
		payload    int
		status     byte
		kind       bmc.Kind
		handshakes int
	}{
		{ipmisim.PayloadOpenResponse, 0x01, bmc.KindSessions, 1},
		{ipmisim.PayloadOpenResponse, 0x11, bmc.KindUnsupported, 2}, // one for each suite
		{ipmisim.PayloadOpenResponse, 0x12, bmc.KindProtocol, 4},
		{ipmisim.PayloadRAKP2, 0x02, bmc.KindProtocol, 4},
		{ipmisim.PayloadRAKP2, 0x0a, bmc.KindPrivilege, 1},
		{ipmisim.PayloadRAKP2, 0x0b, bmc.KindSessions, 1},
		{ipmisim.PayloadRAKP2, 0x0d, bmc.KindAuth, 1},
		{ipmisim.PayloadRAKP4, 0x02, bmc.KindProtocol, 4},
		{ipmisim.PayloadRAKP4, 0x0f, bmc.KindAuth, 2}, // not more: accounts lock
	} {
		relay := relayTo(t, startGo(t, ipmisim.Options{}))
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if d.Payload() == c.payload {
				d.Data[headerLen+1] = c.status
			}
			return []ipmisim.Datagram{d}
		})
		_, err := clientAt(t, relay.Addr()).Read(t.Context())
		assert.Equal(t, c.kind, bmc.KindOf(err), "%v", err)
		assert.Equal(t, c.handshakes, different(relay.Seen(), ipmisim.PayloadOpenRequest), "%v", err)
	}
}
