package ipmi

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
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
		before, err := c.Read(t.Context())
		require.NoError(t, err)
		d, err := c.Describe(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.Description{Manufacturer: "Dell", Model: "product 256", Firmware: "2.85", RestorePolicy: "always-off"}, d)
		after, err := c.Read(t.Context())
		require.NoError(t, err)
		return before.Session == after.Session
	})
}

func TestDescribeOfABMCThatRefusesAll(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	b.Intercept(func(ipmisim.Command) *ipmisim.Reply { return &ipmisim.Reply{Code: 0xc1} })
	d, err := clientAt(t, b.Addr()).Describe(t.Context())
	require.NoError(t, err)
	assert.Equal(t, bmc.Description{}, d)
}

func TestDescribeOfASilentBMC(t *testing.T) {
	t.Parallel()
	c := New(hostAt(t, silent(t)), bmc.Timing{ReadTimeout: 500 * time.Millisecond, SendTimeout: time.Second})
	_, err := c.Describe(t.Context())
	assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
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
