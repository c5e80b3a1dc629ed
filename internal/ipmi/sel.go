package ipmi

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

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
