package ipmi

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
)

// inventory is FRU data made of areas in the order internal, chassis, board,
// product; nil is one that is not there.
func inventory(areas ...[]byte) []byte {
	head := make([]byte, fruHeaderLen)
	head[0] = 1
	all := []byte{}
	for i, a := range areas {
		if a != nil {
			head[1+i] = byte(fruHeaderLen+len(all)) / 8
			all = append(all, a...)
		}
	}
	head[7] = checksum(head[:7])
	return append(head, all...)
}

// area is a FRU area with the bytes in front of its fields, and the fields.
func area(front int, fields ...[]byte) []byte {
	b := make([]byte, front)
	b[0] = 1
	for _, f := range fields {
		b = append(b, f...)
	}
	b = append(b, 0xc1)
	for len(b)%8 != 7 {
		b = append(b, 0)
	}
	b[1] = byte(len(b)+1) / 8
	return append(b, checksum(b))
}

func field(form byte, data string) []byte { return append([]byte{form<<6 | byte(len(data))}, data...) }

func latin(s string) []byte { return field(3, s) }

// giving answers for a BMC with the inventory, which gives at most limit bytes
// at once.
func giving(data []byte, limit int) func(request) (reply, bool) {
	return func(r request) (reply, bool) {
		if r.cmd == cmdFRUInfo {
			return reply{data: append(binary.LittleEndian.AppendUint16(nil, uint16(len(data))), 0)}, true
		}
		at, n := int(binary.LittleEndian.Uint16(r.data[1:])), int(r.data[3])
		if n > limit || at+n > len(data) {
			return reply{code: 0xc9}, false
		}
		return reply{data: append([]byte{byte(n)}, data[at:at+n]...)}, true
	}
}

func TestSerialOfTheInventory(t *testing.T) {
	board := area(boardFields, latin("Acme"), latin("Board"), latin("BRD0042"), latin("P-7"))
	product := area(productFields, latin("Acme"), latin("Server 9"), latin("PN-1"), latin("v1"), latin(" SRV12345 "))
	unnamed := area(productFields, latin("Acme"), latin("Server 9"), latin(""), latin(""), latin(""))
	short := area(productFields, latin("Acme"))
	broken := append([]byte(nil), product...)
	broken[20] ^= 1
	endless := append([]byte(nil), product...)
	endless[1] = 0xff
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"product", inventory(nil, nil, board, product), "SRV12345"},
		{"board only", inventory(nil, nil, board, nil), "BRD0042"},
		{"product without one", inventory(nil, nil, board, unnamed), "BRD0042"},
		{"product that ends early", inventory(nil, nil, board, short), "BRD0042"},
		{"wrong checksum", inventory(nil, nil, board, broken), "BRD0042"},
		{"too long", inventory(nil, nil, board, endless), "BRD0042"},
		{"no area", inventory(nil, nil, nil, nil), ""},
		{"nothing", nil, ""},
		{"zeros", make([]byte, 64), ""},
	} {
		assert.Equal(t, c.want, fru{giving(c.data, fruChunk)}.serial(), c.name)
	}
	assert.Empty(t, fru{giving(inventory(nil, nil, board, product), 8)}.serial(), "a BMC that gives less than any known")
	silent := func(request) (reply, bool) { return reply{}, false }
	assert.Empty(t, fru{silent}.serial())
	words := func(request) (reply, bool) { return reply{data: []byte{0, 1, 1}}, true }
	assert.Empty(t, fru{words}.serial(), "addressed by words")
}

func TestFormsOfText(t *testing.T) {
	for _, c := range []struct {
		form byte
		data []byte
		want string
	}{
		{0, []byte{1, 2, 3}, ""},                  // binary
		{1, []byte{0x12, 0x9b, 0x34}, "129-34"},   // BCD plus
		{2, []byte{0x29, 0xdc, 0xa6}, "IPMI"},     // the example of the specification
		{3, []byte("A\x00\x1b[1m\xe9B"), "A[1mB"}, // nothing that a terminal obeys
		{3, []byte("  padded \x00\x00"), "padded"},
	} {
		assert.Equal(t, c.want, fruText(c.form, c.data))
	}
}
