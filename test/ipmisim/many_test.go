package ipmisim_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// oneOfMany is the BMC with a number.
type oneOfMany struct {
	ipmisim.BMC // what is not asked
	addr        string
}

func (b oneOfMany) Addr() string { return b.addr }

// uuidAt is what fenced's own client reads as the UUID there.
func uuidAt(t *testing.T, addr string) string {
	t.Helper()
	at := must.Do(bmc.ParseEndpoint("ipmi://" + addr))(t)
	d := bmc.Device{Driver: bmc.DriverIPMI, Endpoint: at, Username: "admin", Password: bmc.NewSecret("secret")}
	p := ipmi.New(d, bmc.Timing{ReadTimeout: pace.Tries, SendTimeout: pace.Tries})
	reading, err := p.Read(t.Context())
	require.NoError(t, errors.Join(err, p.Close(t.Context())))
	return reading.Identity.UUID
}

// TestMany: each address is a BMC of its own, with its own identity and power, as a client that is not ours sees it.
func TestMany(t *testing.T) {
	m := must.Do(ipmisim.StartMany(t.Context(), ipmisim.Options{}))(t)
	t.Cleanup(m.Stop)
	const one, other = 3, 300_000
	at := func(number int) ipmisim.BMC {
		return oneOfMany{addr: fmt.Sprintf("%s:%d", ipmisim.ManyAddress(number), m.Port())}
	}
	assert.True(t, m.FirstAsked(one).IsZero())
	assert.Contains(t, ipmitool(t, at(one), "17", "power", "off"), "Down/Off")
	assert.Contains(t, ipmitool(t, at(one), "17", "power", "status"), "is off")
	assert.Contains(t, ipmitool(t, at(other), "17", "power", "status"), "is on")
	for _, number := range []int{one, other} {
		assert.Equal(t, bmc.UUIDForms(ipmisim.ManyUUID(number)), bmc.UUIDForms(uuidAt(t, at(number).Addr())))
	}
	tally := m.Tally()
	assert.Equal(t, []int{one}, tally.Switched)
	assert.Equal(t, 2, tally.BMCs)
	assert.Positive(t, tally.Statuses)
	assert.False(t, m.FirstAsked(one).IsZero())
	m.Reset()
	assert.Zero(t, m.Tally().Datagrams)
	assert.True(t, m.FirstAsked(one).IsZero())
}
