package ipmi

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

func TestDescribeOfIpmiSim(t *testing.T) {
	b := startDebian(t, ipmisim.Options{})
	var d bmc.Description
	pace.Until(t, "less than 30 questions: a sweep of a thousand BMCs asks them", func() bool {
		relay := relayTo(t, b)
		var err error
		d, err = clientAt(t, relay.Addr()).Describe(t.Context())
		require.NoError(t, err)
		return relay.Asked() < 30
	})
	assert.WithinDuration(t, time.Now(), d.ClockAt, time.Minute)
	assert.NotZero(t, d.Clock)
	d.Clock, d.ClockAt = time.Time{}, time.Time{}
	assert.Equal(t, bmc.Description{
		Manufacturer: "MontaVista", Model: "product 3842", Firmware: "9.08", Serial: "SRV12345", RestorePolicy: "always-off",
		PowerEvents: []bmc.PowerEvent{{Text: "forced off (S5 by override)"}, {Text: "working (S0)"}},
	}, d)
	assert.Equal(t, "montavista product 3842 9.08", d.Class())
}

// TestDescribeOfABMCWithoutLog: go-ipmi's server has neither log nor inventory.
func TestDescribeOfABMCWithoutLog(t *testing.T) {
	c := clientAt(t, startGo(t, ipmisim.Options{}).Addr())
	pace.Until(t, "the same session before and after it", func() bool {
		before := bmctest.Read(t, c)
		d := must.Do(c.Describe(t.Context()))(t)
		assert.Equal(t, bmc.Description{Manufacturer: "Dell", Model: "product 256", Firmware: "2.85", RestorePolicy: "always-off"}, d)
		after := bmctest.Read(t, c)
		return before.Session == after.Session
	})
}

func TestDescribeOfABMCThatRefusesAll(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	b.Intercept(func(ipmisim.Command) *ipmisim.Reply { return &ipmisim.Reply{Code: 0xc1} })
	d := must.Do(clientAt(t, b.Addr()).Describe(t.Context()))(t)
	assert.Equal(t, bmc.Description{}, d)
}

// TestDescribeGivesUpWhatIsNotAnswered: a BMC that drops a command it does not
// know costs one wait, and what it told before is kept.
func TestDescribeGivesUpWhatIsNotAnswered(t *testing.T) {
	t.Parallel()
	var c *Client
	timeout := 400 * time.Millisecond
	pace.Until(t, "what it told before", func() bool {
		b := startGo(t, ipmisim.Options{})
		c = New(hostAt(t, b.Addr()), bmc.Timing{ReadTimeout: timeout, SendTimeout: time.Second})
		t.Cleanup(c.drop)
		b.Intercept(func(cmd ipmisim.Command) *ipmisim.Reply {
			if cmd.NetFn == netFnStorage {
				<-t.Context().Done()
			}
			return nil
		})
		d, err := c.Describe(t.Context()) // the answer never comes
		timeout *= 2                      // a busy machine may not even have opened a session
		return err == nil && assert.Equal(t, "Dell", d.Manufacturer)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Describe(ctx)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestDeviceID(t *testing.T) {
	for _, c := range []struct {
		data []byte
		want bmc.Description
	}{
		{[]byte{0x20, 1, 0x06, 0x10, 2, 0xdf, 0xa2, 0x02, 0, 0x00, 0x01, 0, 45, 0, 1},
			bmc.Description{Manufacturer: "Dell", Model: "product 256", Firmware: "6.10 aux 002d0001"}},
		{[]byte{0x20, 1, 0x81, 0x74, 2, 0xbf, 0x7c, 0x2a, 0, 0x2a, 0x09, 0, 0, 0, 0},
			bmc.Description{Manufacturer: "Supermicro", Model: "product 2346", Firmware: "1.74"}},
		{[]byte{0, 0, 0, 0, 2, 0, 0xff, 0xff, 0xff, 0, 0}, bmc.Description{Manufacturer: "enterprise 1048575", Model: "product 0", Firmware: "0.00"}},
		{[]byte{0, 0, 0, 0, 2, 0, 0xcf, 0xc2, 0, 1, 0}, bmc.Description{Manufacturer: "OpenBMC", Model: "product 1", Firmware: "0.00"}},
		{make([]byte, 10), bmc.Description{}},
	} {
		var d bmc.Description
		readDeviceID(c.data, &d)
		assert.Equal(t, c.want, d)
	}
}

func TestRestorePolicy(t *testing.T) {
	for status, want := range map[byte]string{0x01: "always-off", 0x21: "previous", 0x41: "always-on", 0x61: ""} {
		assert.Equal(t, want, restorePolicy([]byte{status, 0, 0}))
	}
	assert.Empty(t, restorePolicy([]byte{0x41, 0}), "cut short")
}

// sel is a log with the records of the given ids, each of sensor type and offset.
type sel map[uint16][2]byte

func (l sel) ask(asked *int) func(request) (reply, bool) {
	return func(r request) (reply, bool) {
		*asked++
		id := binary.LittleEndian.Uint16(r.data[2:])
		if id == selNewest {
			id = 0
			for n := range l {
				id = max(id, n)
			}
		}
		e, ok := l[id]
		if !ok {
			return reply{code: 0xcb}, false
		}
		data := binary.LittleEndian.AppendUint16([]byte{0xff, 0xff}, id)
		data = binary.LittleEndian.AppendUint32(append(data, selSystemEvent), 1_700_000_000+uint32(id))
		return reply{data: append(data, 0x20, 0, 4, e[0], 1, sensorSpecific, e[1], 0xff, 0xff)}, true
	}
}

func TestPowerEvents(t *testing.T) {
	long := sel{}
	for id := range uint16(500) {
		long[id+1] = [2]byte{0x22, 0x0a}
	}
	rare := sel{500: {0x01, 0}, 3: {0x09, 0}}
	for _, c := range []struct {
		name  string
		log   sel
		count int
		want  []string
		asked int
	}{
		{"empty", sel{}, 0, nil, 0},
		{"says it has some, gives none", sel{}, 3, nil, 1},
		{"power and other things", sel{1: {0x09, 0x00}, 2: {0x01, 0x01}, 3: {0x22, 0x00}}, 3, []string{"power off at 1", "working (S0) at 3"}, 3},
		{"a gap", sel{1: {0x09, 0x04}, 3: {0x14, 0x00}}, 2, []string{"mains power lost at 1", "power button pressed at 3"}, 3},
		{"the newest eight", long, 500, []string{"forced off (S5 by override) at 493"}, 8},
		{"bounded", rare, 500, nil, 64},
		{"count that lies", sel{2: {0x09, 0}}, 60000, []string{"power off at 2"}, 2},
	} {
		asked := 0
		events := powerEvents(c.count, c.log.ask(&asked))
		assert.Equal(t, c.asked, asked, c.name)
		assert.LessOrEqual(t, len(events), selTold, c.name)
		for i, want := range c.want {
			assert.Equal(t, want, fmt.Sprintf("%s at %d", events[i].Text, events[i].At.Unix()-1_700_000_000), c.name)
		}
		if c.want == nil {
			assert.Empty(t, events, c.name)
		}
	}
}

func TestPowerEventOfARecord(t *testing.T) {
	record := func(kind, direction, sensor, offset byte, at uint32) []byte {
		b := binary.LittleEndian.AppendUint32([]byte{1, 0, kind}, at)
		return append(b, 0x20, 0, 4, sensor, 1, direction, offset, 0xff, 0xff)
	}
	for _, r := range [][]byte{
		record(0xc0, 0x6f, 0x09, 0, 1), // of the maker's own
		record(0x02, 0x03, 0x09, 0, 1), // a threshold
		record(0x02, 0x6f, 0x09, 0x0e, 1),
		record(0x02, 0x6f, 0x01, 0, 1), // temperature
	} {
		_, ok := powerEvent(r)
		assert.False(t, ok)
	}
	e, ok := powerEvent(record(0x02, 0xef, 0x09, 0xa4, 1_700_000_000))
	assert.True(t, ok)
	assert.Equal(t, bmc.PowerEvent{At: time.Unix(1_700_000_000, 0).UTC(), Text: "mains power lost: no longer"}, e)
	for _, at := range []uint32{0, 500, selTimeUnset} {
		e, _ := powerEvent(record(0x02, 0x6f, 0x09, 0, at))
		assert.Zero(t, e.At, "seconds of nobody's clock")
	}
}

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

// TestInventoryThatIsBusy: another user of the bus of the inventory makes it busy for a moment. The serial
// number of the board must not take the place of that of the product then. // I8
func TestInventoryThatIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := area(boardFields, latin("Acme"), latin("Board"), latin("BRD0042"), latin("P-7"))
		product := area(productFields, latin("Acme"), latin("Server 9"), latin("PN-1"), latin("v1"), latin("SRV12345"))
		data := inventory(nil, nil, board, product)
		whole := giving(data, fruChunk)
		for code := range map[byte]bool{0x81: true, 0xc0: true, 0xc3: true} {
			commands := 0
			count := func(r request) (reply, bool) {
				commands++
				return whole(r)
			}
			require.Equal(t, "SRV12345", fru{count}.serial())
			for busy := 1; busy <= commands; busy++ {
				asked := 0
				once := func(r request) (reply, bool) {
					if asked++; asked == busy {
						return reply{code: code}, false
					}
					return whole(r)
				}
				assert.Equal(t, "SRV12345", fru{once}.serial(), "busy at command %d with %#x", busy, code)

				asked = 0
				fromThen := func(r request) (reply, bool) {
					if asked++; asked >= busy {
						return reply{code: code}, false
					}
					return whole(r)
				}
				assert.Empty(t, fru{fromThen}.serial(), "busy from command %d on with %#x", busy, code)
			}
			at := 8 * int(data[4]) // of the product
			always := func(r request) (reply, bool) {
				if r.cmd == cmdFRURead && int(binary.LittleEndian.Uint16(r.data[1:])) >= at {
					return reply{code: code}, false
				}
				return whole(r)
			}
			assert.Empty(t, fru{always}.serial(), "nobody knows that of the product")
		}
	})
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
