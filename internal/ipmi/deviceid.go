package ipmi

import (
	"encoding/binary"
	"fmt"

	"github.com/fenced/fenced/internal/bmc"
)

var deviceID = request{netFn: netFnApp, cmd: cmdDeviceID}

// manufacturers are the IANA enterprise numbers of common manufacturers.
var manufacturers = map[uint32]string{
	2: "IBM", 11: "HPE", 42: "Sun", 119: "NEC", 343: "Intel", 674: "Dell", 2011: "Huawei", 4753: "MontaVista",
	5771: "Cisco", 6653: "Tyan", 7244: "Quanta", 10297: "Advantech", 10368: "Fujitsu", 10876: "Supermicro",
	11129: "Google", 15370: "Gigabyte", 17084: "Foxconn", 19046: "Lenovo", 20301: "IBM", 20974: "AMI",
	22238: "Foxconn", 25506: "H3C", 37945: "Inspur", 40092: "Wiwynn", 47196: "HPE", 47488: "Supermicro",
	49622: "ASRock Rack", 49769: "Yadro", 49871: "OpenBMC",
}

// readDeviceID parses Get Device ID (table 20-2). The four auxiliary bytes of the
// firmware are manufacturer-specific; some BMCs leave them out.
func readDeviceID(data []byte, d *bmc.Description) {
	if len(data) < 11 {
		return
	}
	maker := uint32(data[6]) | uint32(data[7])<<8 | uint32(data[8]&0x0f)<<16
	d.Manufacturer = manufacturers[maker]
	if d.Manufacturer == "" && maker != 0 {
		d.Manufacturer = fmt.Sprintf("enterprise %d", maker)
	}
	d.Model = fmt.Sprintf("product %d", binary.LittleEndian.Uint16(data[9:]))
	d.Firmware = fmt.Sprintf("%d.%02x", data[2]&0x7f, data[3])
	if len(data) >= 15 && binary.BigEndian.Uint32(data[11:]) != 0 {
		d.Firmware += fmt.Sprintf(" aux %x", data[11:15])
	}
}

// restorePolicy is what the host does when mains power returns (table 28-3).
func restorePolicy(status []byte) string {
	if len(status) < 3 {
		return ""
	}
	return [4]string{"always-off", "previous", "always-on", ""}[status[0]>>5&0x03]
}
