package ipmi

import (
	"encoding/binary"
	"strings"
)

const (
	fruHeaderLen = 8
	// Most areas have about 100 bytes. An area with a greater length is not read.
	fruMaxArea = 512
	// Every BMC can return this many bytes at once; some old ones refuse more.
	fruChunk = 16

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
