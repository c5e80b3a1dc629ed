package ipmi

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

const noGUID = "00000000-0000-0000-0000-000000000000"

// A BMC without a GUID that identifies its host, as OpenBMC comes: its inventory
// tells the serial number, asked once in a session.
func TestSerialInsteadOfGUID(t *testing.T) {
	b, err := ipmisim.StartDebian(t.Context(), ipmisim.Options{UUID: noGUID})
	if errors.Is(err, ipmisim.ErrNoDebianSim) {
		missing(t, err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	relay := relayTo(t, b)
	c := clientAt(t, relay.Addr())
	first, err := c.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, bmc.On, first.State)
	assert.Equal(t, "SRV12345", first.Identity.Serial)
	asked := relay.Asked()
	second, err := c.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, first.Identity, second.Identity)
	assert.Equal(t, first.Session, second.Session)
	assert.Equal(t, 1, relay.Asked()-asked)
}

// A GUID that identifies its host is enough, and one that is to be ignored is not.
func TestSerialOnlyWhereItIsNeeded(t *testing.T) {
	relay := relayTo(t, startDebian(t, ipmisim.Options{}))
	r, err := clientAt(t, relay.Addr()).Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, bmc.Identity{UUID: guidText}, r.Identity)

	d := hostAt(t, relay.Addr())
	d.IgnoreUUID = true
	c := New(d, timing)
	t.Cleanup(c.drop)
	r, err = c.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, bmc.Identity{UUID: guidText, Serial: "SRV12345"}, r.Identity)
}

// withoutGUID is a BMC whose inventory has this serial number.
func withoutGUID(t *testing.T, serial *atomic.Value) *ipmisim.GoBMC {
	t.Helper()
	b, err := ipmisim.StartGo(t.Context(), ipmisim.Options{UUID: noGUID, Suites: []int{17}})
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	b.Intercept(func(cmd ipmisim.Command) *ipmisim.Reply {
		if cmd.NetFn != netFnStorage {
			return nil
		}
		product := area(productFields, latin("Acme"), latin("Server 9"), latin(""), latin(""), latin(serial.Load().(string)))
		answer, _ := giving(inventory(nil, nil, nil, product), fruChunk)(request{netFn: cmd.NetFn, cmd: cmd.Cmd, data: cmd.Data})
		return &ipmisim.Reply{Code: answer.code, Data: answer.data}
	})
	return b
}

// Another machine has the address by now, and neither has a GUID: the command goes
// to none of them, not even on the session that is opened for it. // I8
func TestCommandIsNotGivenToAnotherSerial(t *testing.T) {
	t.Parallel()
	var serial atomic.Value
	serial.Store("SRV1")
	b := withoutGUID(t, &serial)
	c := clientAt(t, b.Addr())
	r, err := c.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "SRV1", r.Identity.Serial)
	serial.Store("SRV2")
	require.NoError(t, b.Restart())
	for range 2 { // the second finds an open session with it
		_, err = c.Send(t.Context(), bmc.CommandOff)
		e, typed := errors.AsType[*bmc.Error](err)
		require.True(t, typed, "%v", err)
		assert.Equal(t, bmc.KindIdentity, e.Kind)
	}
	assert.True(t, b.Power(), "the other machine was switched off")

	r, err = c.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "SRV2", r.Identity.Serial, "the next look shows it")
	_, err = c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	assert.False(t, b.Power())
	require.NoError(t, b.Restart())
	_, err = c.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err, "the same machine in another session")
}

// An inventory that is not read in time costs a part of one reading, once.
func TestInventoryThatIsSilent(t *testing.T) {
	t.Parallel()
	timeout := 3 * time.Second
	pace.Until(t, "two readings", func() bool {
		b, err := ipmisim.StartGo(t.Context(), ipmisim.Options{UUID: noGUID, Suites: []int{17}})
		require.NoError(t, err)
		t.Cleanup(b.Stop)
		var asked atomic.Int64
		b.Intercept(func(cmd ipmisim.Command) *ipmisim.Reply {
			if cmd.NetFn == netFnStorage {
				asked.Add(1)
				<-t.Context().Done()
			}
			return nil
		})
		c := New(hostAt(t, b.Addr()), bmc.Timing{ReadTimeout: timeout, SendTimeout: timeout})
		t.Cleanup(c.drop)
		timeout *= 2 // a busy machine may not even have opened a session
		first, err := c.Read(t.Context())
		before := asked.Load()
		if err != nil || before == 0 {
			return false
		}
		assert.Equal(t, bmc.On, first.State)
		assert.Empty(t, first.Identity.Serial)
		second, err := c.Read(t.Context())
		if err == nil && second.Session == first.Session {
			assert.Equal(t, before, asked.Load(), "asked once in a session")
		}
		return err == nil
	})
}
