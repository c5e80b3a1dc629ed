package ipmi

import (
	"bytes"
	"crypto/aes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

func testSealer(t require.TestingT, s suite) sealer {
	seal, err := newSealer(s, bytes.Repeat([]byte{7}, 20), bytes.Repeat([]byte{9}, 20))
	require.NoError(t, err)
	return seal
}

// TestSealedOpens: what is sealed opens to the same, and no other byte string of
// the same length does.
func TestSealedOpens(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		seal := testSealer(t, rapid.SampledFrom(suites).Draw(t, "suite"))
		message := rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(t, "message")
		sessionID, sequence := rapid.Uint32().Draw(t, "id"), rapid.Uint32().Draw(t, "sequence")
		datagram := seal.seal(sessionID, sequence, [aes.BlockSize]byte{1, 2, 3}, message)

		got, n, err := seal.open(datagram, sessionID)
		require.NoError(t, err)
		assert.Equal(t, sequence, n)
		assert.True(t, bytes.Equal(message, got))

		_, _, err = seal.open(datagram, sessionID+1)
		assert.Error(t, err, "another session's")
		// The RMCP header's reserved and sequence bytes alone mean nothing.
		at := rapid.IntRange(rmcpLen, len(datagram)-1).Draw(t, "at")
		datagram[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		_, _, err = seal.open(datagram, sessionID)
		assert.Error(t, err, "altered at %d", at)
	})
}

// TestAuthenticButMalformed are datagrams that only the BMC itself can make.
func TestAuthenticButMalformed(t *testing.T) {
	for _, s := range suites {
		seal := testSealer(t, s)
		finish := func(flags byte, payload []byte, tail ...byte) []byte {
			b := appendHeader(nil, flags, 1, 1, len(payload))
			b = append(append(b, payload...), tail...)
			return append(b, seal.code(b)...)
		}
		const both = payloadIPMI | flagEncrypted | flagAuthenticated
		block := func(last byte) []byte { // encrypts 15 zeros and last
			b := make([]byte, 2*aes.BlockSize)
			plain := append(make([]byte, aes.BlockSize-1), last)
			seal.block.Encrypt(b[aes.BlockSize:], plain) // the vector is zero
			return b
		}
		_, _, err := seal.open(finish(both, block(0), 0xff, 0xff, 2, 7), 1)
		require.NoError(t, err, "the well-formed one")
		for name, b := range map[string][]byte{
			"not encrypted":       finish(payloadIPMI|flagAuthenticated, block(0), 0xff, 0xff, 2, 7),
			"serial over LAN":     finish(0x01|flagEncrypted|flagAuthenticated, block(0), 0xff, 0xff, 2, 7),
			"pad length too long": finish(both, block(0), 0xff, 0xff, 3, 7),
			"another next header": finish(both, block(0), 0xff, 0xff, 2, 6),
			"no trailer":          finish(both, block(0)),
			"no payload":          finish(both, nil, 0xff, 0xff, 2, 7),
			"vector only":         finish(both, block(0)[:16], 0xff, 0xff, 2, 7),
			"half a block":        finish(both, block(0)[:24], 0xff, 0xff, 2, 7),
			"padding of zeros":    finish(both, block(3), 0xff, 0xff, 2, 7),
			"padding over all":    finish(both, block(16), 0xff, 0xff, 2, 7),
		} {
			_, _, err := seal.open(b, 1)
			assert.Error(t, err, name)
		}
	}
}

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		name  string
		given []uint32
		fresh []bool
	}{
		{"in order", []uint32{1, 2, 3}, []bool{true, true, true}},
		{"zero is outside sessions", []uint32{0, 1, 0}, []bool{false, true, false}},
		{"twice", []uint32{1, 1, 2, 1, 2}, []bool{true, false, true, false, false}},
		{"late", []uint32{1, 5, 3, 3, 4, 2}, []bool{true, true, true, false, true, true}},
		{"15 behind", []uint32{20, 5, 4, 5}, []bool{true, true, false, false}},
		{"15 ahead", []uint32{1, 16, 32, 31}, []bool{true, true, false, true}},
		{"any start", []uint32{0x80000000, 0x80000001, 1}, []bool{true, true, false}},
	} {
		var w window
		for i, n := range c.given {
			assert.Equal(t, c.fresh[i], w.accept(n), "%s: %d at %d", c.name, n, i)
		}
	}
}

func TestReplyToAnotherQuestion(t *testing.T) {
	good := offReply(5)
	_, err := chassisStatus.decodeReply(good, 5)
	require.NoError(t, err)
	_, err = chassisStatus.decodeReply(good, 6)
	assert.Error(t, err, "another sequence number")
	for at, what := range map[int]string{1: "another network function", 5: "another command"} {
		other := append([]byte(nil), good...)
		other[at] += 4
		other[2], other[len(other)-1] = checksum(other[:2]), checksum(other[3:len(other)-1])
		_, err = chassisStatus.decodeReply(other, 5)
		assert.Error(t, err, what)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x40
		_, err := chassisStatus.decodeReply(bad, 5)
		assert.Error(t, err, "altered at %d", i)
	}
	_, err = chassisStatus.decodeReply(good[:7], 5)
	assert.Error(t, err, "cut short")
	// The request itself, mirrored by somebody, is not its own reply.
	_, err = chassisStatus.decodeReply(chassisStatus.encode(5), 5)
	assert.Error(t, err)
}
