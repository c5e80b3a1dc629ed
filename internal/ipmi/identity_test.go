package ipmi

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
)

// Two BMCs have one address, or it has gone to another: who was read is not who
// answers the command. A command goes to the machine that was read, or to none. // I8
func TestCommandIsNotGivenToAnotherBMC(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{Suites: []int{17}})
	c := clientAt(t, b.Addr())
	r := bmctest.Read(t, c)
	require.Equal(t, guidText, r.Identity.UUID)

	require.NoError(t, b.SetUUID(otherGUID)) // from here on it is another BMC,
	require.NoError(t, b.Restart())          // which does not know the session
	refusedAsStranger(t, b, c)

	before := r.Session
	r = bmctest.Read(t, c)
	require.Equal(t, strings.ReplaceAll(otherGUID, "-", ""), r.Identity.UUID, "the next look shows it")
	assert.NotEqual(t, before, r.Session)
	_, err := c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err, "who asked knows by now whom")
	assert.False(t, b.Power())
}

// refusedAsStranger sends an Off twice, which must go to nobody: the second finds an open session
// with the other machine.
func refusedAsStranger(t *testing.T, b *ipmisim.GoBMC, c *Client) {
	t.Helper()
	for range 2 {
		_, err := c.Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, bmc.SentNo, bmctest.Failed(t, err, bmc.KindIdentity).Sent)
	}
	assert.True(t, b.Power(), "the other machine was switched off")
}

// A session that another use opened with another BMC is no leave to command it. // I8
func TestDescribeIsNoLookAtWhoAnswers(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{Suites: []int{17}})
	c := clientAt(t, b.Addr())
	bmctest.Read(t, c)
	require.NoError(t, b.SetUUID(otherGUID))
	require.NoError(t, b.Restart())
	must.Do(c.Describe(t.Context()))(t)
	_, err := c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.KindIdentity, bmc.KindOf(err))
	assert.True(t, b.Power())
}

const noGUID = "00000000-0000-0000-0000-000000000000"

// A BMC without a GUID that identifies its host, as OpenBMC comes: its inventory
// tells the serial number, asked once in a session.
func TestSerialInsteadOfGUID(t *testing.T) {
	relay := relayTo(t, startDebian(t, ipmisim.Options{UUID: noGUID}))
	c := clientAt(t, relay.Addr())
	first := bmctest.Read(t, c)
	assert.Equal(t, bmc.On, first.State)
	assert.Equal(t, "SRV12345", first.Identity.Serial)
	asked := relay.Asked()
	second := bmctest.Read(t, c)
	assert.Equal(t, first.Identity, second.Identity)
	assert.Equal(t, first.Session, second.Session)
	assert.Equal(t, 1, relay.Asked()-asked)
}

// A GUID that identifies its host is enough, and one that is to be ignored is not.
func TestSerialOnlyWhereItIsNeeded(t *testing.T) {
	relay := relayTo(t, startDebian(t, ipmisim.Options{}))
	r := bmctest.Read(t, clientAt(t, relay.Addr()))
	assert.Equal(t, bmc.Identity{UUID: guidText}, r.Identity)

	r = bmctest.Read(t, clientAt(t, relay.Addr(), ignoringUUID))
	assert.Equal(t, bmc.Identity{UUID: guidText, Serial: "SRV12345"}, r.Identity)
}

// withoutGUID is a BMC whose inventory has this serial number, asked for at each part of it.
func withoutGUID(t *testing.T, serial func() string) *ipmisim.GoBMC {
	t.Helper()
	b := startGo(t, ipmisim.Options{UUID: noGUID, Suites: []int{17}})
	b.Intercept(func(cmd ipmisim.Command) *ipmisim.Reply {
		if cmd.NetFn != netFnStorage {
			return nil
		}
		product := area(productFields, latin("Acme"), latin("Server 9"), latin(""), latin(""), latin(serial()))
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
	b := withoutGUID(t, func() string { return serial.Load().(string) })
	c := clientAt(t, b.Addr())
	r := bmctest.Read(t, c)
	require.Equal(t, "SRV1", r.Identity.Serial)
	serial.Store("SRV2")
	require.NoError(t, b.Restart())
	refusedAsStranger(t, b, c)

	r = bmctest.Read(t, c)
	require.Equal(t, "SRV2", r.Identity.Serial, "the next look shows it")
	bmctest.Send(t, c, bmc.CommandOff)
	assert.False(t, b.Power())
	require.NoError(t, b.Restart())
	_, err := c.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err, "the same machine in another session")
}

// An inventory that is not read in time costs a part of one reading, once.
func TestInventoryThatIsSilent(t *testing.T) {
	t.Parallel()
	timeout := 3 * time.Second
	pace.Until(t, "two readings", func() bool {
		b := startGo(t, ipmisim.Options{UUID: noGUID, Suites: []int{17}})
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

// An answer about the inventory that is lost is asked for again: the BMC knows the session. // I8
func TestInventoryWithALostAnswer(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var lose atomic.Bool
	b := withoutGUID(t, func() string {
		lose.Store(asked.Add(1) == 1)
		return "SRV1"
	})
	relay := relayTo(t, b)
	relay.Filter(losing(func(d ipmisim.Datagram) bool { return d.FromBMC && lose.Swap(false) }))
	r := bmctest.Read(t, clientAt(t, relay.Addr()))
	assert.Equal(t, "SRV1", r.Identity.Serial)
}

// A reading that its caller ends during the inventory does not hide the serial number from the next
// one, which may be a run's for which a health check made way. // I8
func TestInventoryThatIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := withoutGUID(t, func() string {
		cancel()
		return "SRV1"
	})
	c := clientAt(t, b.Addr())
	first, err := c.Read(ctx)
	require.NoError(t, err)
	assert.Empty(t, first.Identity.Serial)
	second := bmctest.Read(t, c)
	assert.Equal(t, first.Session, second.Session)
	assert.Equal(t, "SRV1", second.Identity.Serial)
}

// virtualbmc has a new GUID at each start. It can be read and switched, and what it
// reports beside the GUID stays the same.
func TestGUIDThatIsNewAtEachStart(t *testing.T) {
	t.Parallel()
	var guids []string
	for range 2 {
		c := clientAt(t, startPyghmi(t, ipmisim.Options{NewGUID: true}).Addr(), ignoringUUID)
		r := bmctest.Read(t, c)
		assert.Equal(t, bmc.On, r.State)
		assert.Empty(t, r.Identity.Serial, "it has no inventory")
		guids = append(guids, r.Identity.UUID)
		bmctest.Send(t, c, bmc.CommandOff)
		assert.Equal(t, bmc.Off, bmctest.Read(t, c).State)
		require.NoError(t, c.Close(t.Context()))
	}
	assert.NotEqual(t, guids[0], guids[1])
	for _, guid := range guids {
		assert.True(t, bmc.UsableUUID(guid), "nothing in it says that it identifies no host")
	}
}
