package ipmi

import "errors"

// Addresses on the BMC's side and ours (section 5.5).
const (
	addrBMC     = 0x20
	addrConsole = 0x81
)

// request is one IPMI command. Its network function is even.
type request struct {
	netFn, cmd byte
	data       []byte
	privileged bool // needs more than the privilege USER, with which a session starts
}

// reply is the answer to a request.
type reply struct {
	code byte // completion code
	data []byte
}

var errNotTheReply = errors.New("not the reply to this command")

// checksum is the two's complement that makes b and it sum to zero.
func checksum(b []byte) byte {
	var sum byte
	for _, v := range b {
		sum += v
	}
	return -sum
}

// encode builds the message with the 6-bit sequence number rqSeq (section 13.8).
func (r request) encode(rqSeq byte) []byte {
	b := []byte{addrBMC, r.netFn << 2}
	b = append(b, checksum(b))
	b = append(b, addrConsole, rqSeq<<2, r.cmd)
	b = append(b, r.data...)
	return append(b, checksum(b[3:]))
}

// decodeReply reads the answer to r with rqSeq. A late answer to another
// command is an error like any other: the caller keeps listening.
func (r request) decodeReply(b []byte, rqSeq byte) (reply, error) {
	const shortest = 8 // six header bytes, completion code, checksum
	if len(b) < shortest ||
		checksum(b[:3]) != 0 || checksum(b[3:]) != 0 ||
		b[1]>>2 != r.netFn+1 || b[4]>>2 != rqSeq || b[5] != r.cmd {
		return reply{}, errNotTheReply
	}
	return reply{code: b[6], data: b[7 : len(b)-1]}, nil
}
