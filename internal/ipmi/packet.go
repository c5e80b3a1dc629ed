package ipmi

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
)

// Payload types (table 13-16), and the two flag bits in the same byte.
const (
	payloadIPMI         = 0x00
	payloadOpenRequest  = 0x10
	payloadOpenResponse = 0x11
	payloadRAKP1        = 0x12
	payloadRAKP2        = 0x13
	payloadRAKP3        = 0x14
	payloadRAKP4        = 0x15

	flagEncrypted     = 0x80
	flagAuthenticated = 0x40
)

const (
	rmcpLen   = 4
	headerLen = rmcpLen + 12 // RMCP header and RMCP+ session header
	// maxDatagram is longer than any expected answer. The socket cuts a longer
	// datagram; it then fails its checks and is dropped.
	maxDatagram = 1024
)

// packet is one parsed RMCP+ datagram. Its slices point into the datagram.
type packet struct {
	payloadType byte // including the two flags
	sessionID   uint32
	sequence    uint32
	payload     []byte
	trailer     []byte // integrity pad, lengths and code; not checked yet
}

var errNotRMCPPlus = errors.New("not an RMCP+ datagram")

// appendHeader starts a datagram whose payload has n bytes.
func appendHeader(b []byte, payloadType byte, sessionID, sequence uint32, n int) []byte {
	b = append(b, 0x06, 0x00, 0xff, 0x07) // RMCP 1.0, no acknowledge, class IPMI
	b = append(b, 0x06, payloadType)      // authentication type: RMCP+
	b = binary.LittleEndian.AppendUint32(b, sessionID)
	b = binary.LittleEndian.AppendUint32(b, sequence)
	return binary.LittleEndian.AppendUint16(b, uint16(n))
}

// parsePacket parses a datagram. It rejects IPMI 1.5 framing and OEM payloads,
// whose header is longer.
func parsePacket(b []byte) (packet, error) {
	if len(b) < headerLen || b[0] != 0x06 || b[3] != 0x07 || b[4] != 0x06 {
		return packet{}, errNotRMCPPlus
	}
	n := int(binary.LittleEndian.Uint16(b[14:]))
	if n > len(b)-headerLen || b[5]&0x3f == 0x02 {
		return packet{}, errNotRMCPPlus
	}
	return packet{
		payloadType: b[5],
		sessionID:   binary.LittleEndian.Uint32(b[6:]),
		sequence:    binary.LittleEndian.Uint32(b[10:]),
		payload:     b[headerLen : headerLen+n],
		trailer:     b[headerLen+n:],
	}, nil
}

// sealer protects the payloads of one session (sections 13.28 and 13.29).
type sealer struct {
	suite suite
	k1    []byte
	block cipher.Block
}

var errNotAuthentic = errors.New("not an encrypted and authentic datagram of this session")

// nextHeader is the only allowed value of the byte before the code.
const nextHeader = 0x07

func newSealer(s suite, k1, k2 []byte) (sealer, error) {
	block, err := aes.NewCipher(k2[:16])
	if err != nil {
		return sealer{}, fmt.Errorf("session key: %w", err)
	}
	return sealer{suite: s, k1: k1, block: block}, nil
}

// seal builds the datagram that carries message.
func (s sealer) seal(bmcID, sequence uint32, iv [aes.BlockSize]byte, message []byte) []byte {
	pad := (aes.BlockSize - (len(message)+1)%aes.BlockSize) % aes.BlockSize
	plain := append([]byte(nil), message...)
	for i := range pad {
		plain = append(plain, byte(i+1))
	}
	plain = append(plain, byte(pad))

	b := appendHeader(nil, payloadIPMI|flagEncrypted|flagAuthenticated, bmcID, sequence, len(iv)+len(plain))
	b = append(b, iv[:]...)
	at := len(b)
	b = append(b, plain...)
	cipher.NewCBCEncrypter(s.block, iv[:]).CryptBlocks(b[at:], plain)

	// The code covers a multiple of four bytes, from the authentication type on.
	fill := -(len(b) - rmcpLen + 2) & 3
	for range fill {
		b = append(b, 0xff)
	}
	b = append(b, byte(fill), nextHeader)
	return append(b, s.code(b)...)
}

// code is the integrity code of a datagram that is otherwise complete.
func (s sealer) code(b []byte) []byte {
	return s.suite.hmac(s.k1, b[rmcpLen:])[:s.suite.codeLen]
}

// open checks and decrypts a datagram addressed to the session id consoleID. It
// returns the message and its sequence number only if every check passes. // I1
func (s sealer) open(b []byte, consoleID uint32) (message []byte, sequence uint32, err error) {
	p, err := parsePacket(b)
	if err != nil {
		return nil, 0, err
	}
	end := len(b) - s.suite.codeLen
	if p.payloadType != payloadIPMI|flagEncrypted|flagAuthenticated || p.sessionID != consoleID ||
		len(p.trailer) < 2+s.suite.codeLen || !hmac.Equal(s.code(b[:end]), b[end:]) {
		return nil, 0, errNotAuthentic
	}
	tail := p.trailer[:len(p.trailer)-s.suite.codeLen]
	fill := len(tail) - 2
	if tail[fill+1] != nextHeader || int(tail[fill]) != fill {
		return nil, 0, errNotAuthentic
	}
	message, err = s.decrypt(p.payload)
	return message, p.sequence, err
}

func (s sealer) decrypt(b []byte) ([]byte, error) {
	if len(b) < 2*aes.BlockSize || len(b)%aes.BlockSize != 0 {
		return nil, errNotAuthentic
	}
	plain := make([]byte, len(b)-aes.BlockSize)
	cipher.NewCBCDecrypter(s.block, b[:aes.BlockSize]).CryptBlocks(plain, b[aes.BlockSize:])
	pad := int(plain[len(plain)-1])
	n := len(plain) - 1 - pad
	if pad >= aes.BlockSize || n < 0 {
		return nil, errNotAuthentic
	}
	for i, v := range plain[n : n+pad] {
		if v != byte(i+1) {
			return nil, errNotAuthentic
		}
	}
	return plain[:n], nil
}

// window records which sequence numbers of the BMC were used (section 6.12.13).
// Each is accepted once, and none 16 or more below or above the highest.
type window struct {
	highest uint32
	seen    uint16 // bit n is set if highest-n was used
}

// accept reports whether n is fresh, and marks it as used. The first number may
// be any: the keys are new, so no older datagram can be replayed.
func (w *window) accept(n uint32) bool {
	if n == 0 {
		return false // zero is for datagrams outside sessions
	}
	if w.seen == 0 {
		w.highest, w.seen = n, 1
		return true
	}
	switch ahead := int64(n) - int64(w.highest); {
	case ahead > 15 || ahead < -15:
		return false
	case ahead > 0:
		w.highest, w.seen = n, w.seen<<ahead|1
	default:
		if w.seen>>-ahead&1 == 1 {
			return false
		}
		w.seen |= 1 << -ahead
	}
	return true
}
