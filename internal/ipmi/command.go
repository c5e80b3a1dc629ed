package ipmi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

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

// Network functions and commands (appendix G).
const (
	netFnChassis = 0x00
	netFnApp     = 0x06
	netFnStorage = 0x0a

	cmdDeviceID       = 0x01 // App
	cmdChassisStatus  = 0x01
	cmdChassisControl = 0x02
	cmdSetPrivilege   = 0x3b
	cmdCloseSession   = 0x3c

	cmdFRUInfo  = 0x10 // Storage
	cmdFRURead  = 0x11
	cmdSELInfo  = 0x40
	cmdSELEntry = 0x43
	cmdSELTime  = 0x48
)

// Privilege levels (table 13-11).
var privileges = map[string]byte{"": 0x03, "OPERATOR": 0x03, "ADMINISTRATOR": 0x04}

const (
	codeOK           = 0x00
	codePresentState = 0xd5
)

var chassisStatus = request{netFn: netFnChassis, cmd: cmdChassisStatus}

// chassisControl is the request for c: power down (0) or power up (1), the only
// two absolute values of Chassis Control. // I3
func chassisControl(c bmc.Command) (request, bool) {
	r := request{netFn: netFnChassis, cmd: cmdChassisControl, privileged: true}
	switch c {
	case bmc.CommandOff:
		r.data = []byte{0x00}
	case bmc.CommandOn:
		r.data = []byte{0x01}
	default:
		return request{}, false
	}
	return r, true
}

func setPrivilege(level byte) request {
	return request{netFn: netFnApp, cmd: cmdSetPrivilege, data: []byte{level}}
}

// faults are the bits of the current power state that mean that the chassis does
// not obey (table 28-3, byte 2).
var faults = []struct {
	bit  byte
	name string
}{{0x10, "power control fault"}, {0x08, "main power fault"}, {0x04, "interlock"}, {0x02, "power overload"}}

// readStatus parses Get Chassis Status. A short answer is Unknown.
func readStatus(data []byte) (state bmc.PowerState, raw, fault string) {
	raw = fmt.Sprintf("chassis status 0x%x", data[:min(len(data), 4)])
	if len(data) < 3 {
		return bmc.Unknown, raw, ""
	}
	var names []string
	for _, f := range faults {
		if data[0]&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	state = bmc.Off
	if data[0]&0x01 != 0 {
		state = bmc.On
	}
	return state, raw, strings.Join(names, ", ")
}
