package ipmi

import (
	"encoding/binary"
	"errors"
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
