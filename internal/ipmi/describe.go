package ipmi

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

var _ bmc.Describer = (*Client)(nil)

// Describe reads the BMC's device ID, the host's serial number, and the BMC's
// clock and log. A USER may read all of it. Only the device ID is mandatory.
func (c *Client) Describe(ctx context.Context) (bmc.Description, error) {
	const name = "describe"
	var d bmc.Description
	status, err := c.query(ctx, chassisStatus)
	if err != nil {
		return bmc.Description{}, c.explain(name, bmc.SentNo, err)
	}
	if status.code == codeOK {
		d.RestorePolicy = restorePolicy(status.data)
	}
	who, err := c.query(ctx, deviceID)
	if err != nil {
		return bmc.Description{}, c.explain(name, bmc.SentNo, err)
	}
	if who.code == codeOK {
		readDeviceID(who.data, &d)
	}
	c.describeMore(ctx, &d)
	if err := ctx.Err(); err != nil {
		return bmc.Description{}, c.explain(name, bmc.SentNo, err)
	}
	return d, nil
}

// describeMore reads the optional parts, with the timeout of two reads. It stops
// after a command without an answer.
func (c *Client) describeMore(ctx context.Context, d *bmc.Description) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.timing.ReadTimeout)
	defer cancel()
	ask := untilSilent(func(r request) (reply, error) { return c.query(ctx, r) })
	d.Serial = fru{ask}.serial()
	if answer, ok := ask(selTime); ok {
		if d.Clock = readSELTime(answer.data); !d.Clock.IsZero() {
			d.ClockAt = time.Now()
		}
	}
	if answer, ok := ask(selInfo); ok {
		d.PowerEvents = powerEvents(selCount(answer.data), ask)
	}
}

// untilSilent asks with query, and asks nothing more after a command without an answer.
// It returns false for that one, and for a command that the BMC refuses.
func untilSilent(query func(request) (reply, error)) func(request) (reply, bool) {
	silent := false
	return func(r request) (reply, bool) {
		if silent {
			return reply{}, false
		}
		answer, err := query(r)
		silent = err != nil
		return answer, err == nil && answer.code == codeOK
	}
}

// query sends one command, with the timeout of a read.
func (c *Client) query(ctx context.Context, r request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.ReadTimeout)
	defer cancel()
	op := &operation{client: c}
	return op.do(ctx, r)
}

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

const (
	fruHeaderLen = 8
	// Most areas have about 100 bytes. An area with a greater length is not read.
	fruMaxArea = 512
	// Every BMC can return this many bytes at once; some old ones refuse more.
	fruChunk = 16

	// An inventory that is busy is asked again, at the earliest after 30 ms (table 34-3).
	fruTries    = 3
	fruPause    = 50 * time.Millisecond
	codeFRUBusy = 0x81

	productFields = 3 // bytes before the first field: version, length, language
	boardFields   = 6 // also the date of manufacture
	productSerial = 4 // index of the field
	boardSerial   = 2
)

var fruInfo = request{netFn: netFnStorage, cmd: cmdFRUInfo, data: []byte{0}}

// fruRead requests n bytes of FRU device 0 at the offset at.
func fruRead(at, n int) request {
	data := binary.LittleEndian.AppendUint16([]byte{0}, uint16(at))
	return request{netFn: netFnStorage, cmd: cmdFRURead, data: append(data, byte(n))}
}

// fru reads the inventory of the host, no more than is needed. ask returns false
// if the BMC does not answer.
type fru struct{ ask func(request) (reply, bool) }

// serial is the serial number of the product, else that of its board; "" if the
// BMC reports none (Platform Management FRU Information Storage 1.0).
func (f fru) serial() string {
	f.ask = untilBusy(f.ask)
	answer, ok := f.ask(fruInfo)
	if !ok || len(answer.data) < 3 || answer.data[2]&0x01 != 0 {
		return "" // no FRU, or addressed by words
	}
	head, ok := f.read(0, fruHeaderLen)
	if !ok || head[0] != 0x01 || checksum(head) != 0 {
		return ""
	}
	if s := fruField(f.area(head[4]), productFields, productSerial); s != "" {
		return s
	}
	return fruField(f.area(head[3]), boardFields, boardSerial)
}

// untilBusy asks with ask, again while the inventory is busy. If it stays busy, nothing more of it is read:
// the number of the board would take the place of that of the product, and another machine seem to answer. // I8
func untilBusy(ask func(request) (reply, bool)) func(request) (reply, bool) {
	busy := false
	return func(r request) (reply, bool) {
		for try := 1; !busy; try++ {
			answer, ok := ask(r)
			if ok || !isFRUBusy(answer.code) {
				return answer, ok
			}
			if busy = try == fruTries; !busy {
				time.Sleep(fruPause)
			}
		}
		return reply{}, false
	}
}

func isFRUBusy(code byte) bool {
	return code == codeFRUBusy || kindOf(&codeError{code}) == bmc.KindBusy
}

// area returns the whole area that starts at start times eight; nil if there is
// none, or if its checksum is wrong.
func (f fru) area(start byte) []byte {
	if start == 0 {
		return nil
	}
	head, ok := f.read(8*int(start), 2)
	if !ok || 8*int(head[1]) > fruMaxArea {
		return nil
	}
	area, ok := f.read(8*int(start), 8*int(head[1]))
	if !ok || checksum(area) != 0 {
		return nil
	}
	return area
}

// read returns n bytes at the offset at, with as many commands as needed.
func (f fru) read(at, n int) ([]byte, bool) {
	var all []byte
	for len(all) < n {
		want := min(fruChunk, n-len(all))
		answer, ok := f.ask(fruRead(at+len(all), want))
		if !ok || len(answer.data) < 1+want || int(answer.data[0]) != want {
			return nil, false
		}
		all = append(all, answer.data[1:1+want]...)
	}
	return all, true
}

// fruField returns a field of an area as text; "" if there is none. Each field
// starts with its type and length; 0xc1 ends the list.
func fruField(area []byte, at, field int) string {
	for ; at < len(area) && area[at] != 0xc1; field-- {
		form, n := area[at]>>6, int(area[at]&0x3f)
		if at+1+n > len(area) {
			return ""
		}
		if field == 0 {
			return fruText(form, area[at+1:at+1+n])
		}
		at += 1 + n
	}
	return ""
}

// fruText decodes a field: BCD plus, packed 6-bit ASCII or 8-bit text. It drops
// everything but printable ASCII.
func fruText(form byte, data []byte) string {
	var text strings.Builder
	switch form {
	case 1:
		for _, b := range data {
			text.WriteByte("0123456789 -.   "[b>>4])
			text.WriteByte("0123456789 -.   "[b&0x0f])
		}
	case 2:
		var bits, n uint
		for _, b := range data {
			bits |= uint(b) << n
			for n += 8; n >= 6; n -= 6 {
				text.WriteByte(byte(bits&0x3f) + ' ')
				bits >>= 6
			}
		}
	case 3:
		for _, b := range data {
			if b >= ' ' && b <= '~' {
				text.WriteByte(b)
			}
		}
	}
	return strings.TrimSpace(text.String())
}

const (
	// How many of the newest entries are searched for power events, and how many
	// events are returned.
	selSearched = 64
	selTold     = 8

	selNewest       = 0xffff // id of the last record in Get SEL Entry
	selRecordLen    = 16
	selSystemEvent  = 0x02 // record type
	sensorSpecific  = 0x6f // event type
	selTimeUnset    = 0xffffffff
	selTimeRelative = 0x20000000 // smaller values are seconds since the BMC started
)

var (
	selInfo = request{netFn: netFnStorage, cmd: cmdSELInfo}
	selTime = request{netFn: netFnStorage, cmd: cmdSELTime}
)

// selEntry requests the whole record id, without a reservation.
func selEntry(id uint16) request {
	data := binary.LittleEndian.AppendUint16([]byte{0, 0}, id)
	return request{netFn: netFnStorage, cmd: cmdSELEntry, data: append(data, 0, 0xff)}
}

// selCount is the number of entries in the log (table 31-2).
func selCount(data []byte) int {
	if len(data) < 3 {
		return 0
	}
	return int(binary.LittleEndian.Uint16(data[1:]))
}

// readSELTime is the BMC's clock; zero if it has none (table 31-10).
func readSELTime(data []byte) time.Time {
	if len(data) < 4 {
		return time.Time{}
	}
	return selClock(binary.LittleEndian.Uint32(data), 0)
}

// selClock converts seconds to a time; zero if they are no time.
func selClock(seconds, least uint32) time.Time {
	if seconds == selTimeUnset || seconds < least {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

// selRecord is the record in an answer to Get SEL Entry.
func selRecord(data []byte) (id uint16, record []byte, ok bool) {
	if len(data) < 2+selRecordLen {
		return 0, nil, false
	}
	record = data[2 : 2+selRecordLen]
	return binary.LittleEndian.Uint16(record), record, true
}

// powerTexts are the texts of sensor events about power, by sensor type and
// offset (table 42-3).
var powerTexts = map[byte]map[byte]string{
	0x08: {0x01: "power supply failed", 0x03: "power supply lost its input"},
	0x09: {0x00: "power off", 0x01: "power cycle", 0x02: "240 VA power down", 0x03: "interlock power down",
		0x04: "mains power lost", 0x05: "soft power control failed", 0x06: "power unit failed"},
	0x12: {0x04: "platform event filter acted"},
	0x14: {0x00: "power button pressed", 0x02: "reset button pressed"},
	0x1d: {0x00: "started by power up", 0x01: "started by hard reset", 0x02: "started by warm reset",
		0x07: "system restart"},
	0x22: {0x00: "working (S0)", 0x04: "suspended to disk (S4)", 0x05: "soft off (S5)", 0x06: "soft off (S4 or S5)",
		0x07: "mechanical off (G3)", 0x0a: "forced off (S5 by override)", 0x0b: "on", 0x0c: "off"},
}

// powerEvent returns the power event in a record; ok is false if there is none.
func powerEvent(record []byte) (e bmc.PowerEvent, ok bool) {
	if record[2] != selSystemEvent || record[12]&0x7f != sensorSpecific {
		return e, false
	}
	text := powerTexts[record[10]][record[13]&0x0f]
	if text == "" {
		return e, false
	}
	if record[12]&0x80 != 0 {
		text += ": no longer"
	}
	at := binary.LittleEndian.Uint32(record[3:])
	return bmc.PowerEvent{At: selClock(at, selTimeRelative), Text: text}, true
}

// powerEvents reads the log backwards. A record names only its successor. Record
// ids count up, so the id before is one less, unless that record was deleted. ask
// returns false if the BMC does not answer.
func powerEvents(count int, ask func(request) (reply, bool)) []bmc.PowerEvent {
	var events []bmc.PowerEvent
	next := uint16(selNewest)
	for asked := 0; asked < selSearched && count > 0; asked++ {
		answer, ok := ask(selEntry(next))
		id, record, whole := selRecord(answer.data)
		switch {
		case ok && whole && (next == selNewest || id == next):
			count--
			if e, about := powerEvent(record); about {
				events = append(events, e)
			}
		case next == selNewest:
			return nil
		default:
			id = next // a deleted record
		}
		if next = id - 1; id <= 1 || len(events) == selTold {
			break
		}
	}
	slices.Reverse(events)
	return events
}
