package ipmi

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// answering makes b answer cmd with code, times times.
func answering(b *ipmisim.GoBMC, cmd, code byte, times int32) {
	var left atomic.Int32
	left.Store(times)
	b.Intercept(func(c ipmisim.Command) *ipmisim.Reply {
		if c.Cmd != cmd || left.Add(-1) < 0 {
			return nil
		}
		return &ipmisim.Reply{Code: code}
	})
}

func TestCompletionCodesOfControl(t *testing.T) {
	for _, c := range []struct {
		code byte
		kind bmc.Kind
	}{
		{0xc1, bmc.KindUnsupported}, {0xd4, bmc.KindPrivilege},
		{0xcc, bmc.KindProtocol}, {0xff, bmc.KindProtocol}, {0xd6, bmc.KindProtocol},
	} {
		b := startGo(t, ipmisim.Options{})
		answering(b, cmdChassisControl, c.code, 1)
		_, err := clientAt(t, b.Addr()).Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, c.kind, bmc.KindOf(err), "0x%02x: %v", c.code, err)
		var e *bmc.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, bmc.SentYes, e.Sent, "the BMC has the command, and refused it")
		assert.True(t, b.Power())
	}
}

func TestBusyIsWaitedOut(t *testing.T) {
	for _, code := range []byte{0xc0, 0xc3, 0xd0, 0xd1, 0xd2} {
		for _, cmd := range []byte{cmdChassisControl, cmdSetPrivilege} {
			t.Run(fmt.Sprintf("code 0x%02x to command 0x%02x", code, cmd), func(t *testing.T) {
				t.Parallel()
				b := startGo(t, ipmisim.Options{})
				answering(b, cmd, code, 1)
				_, err := clientAt(t, b.Addr()).Send(t.Context(), bmc.CommandOff)
				require.NoError(t, err)
				assert.False(t, b.Power())
			})
		}
	}
}

func TestBusyForEver(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	c := clientAt(t, b.Addr())
	_, err := c.Read(t.Context())
	require.NoError(t, err)
	answering(b, cmdChassisStatus, 0xc0, 1<<30)
	c.timing.ReadTimeout = 2 * time.Second
	pace.Until(t, "the BMC is heard, and is busy", func() bool {
		pace.Lasts(t, 2*time.Second, 450*time.Millisecond, func() { _, err = c.Read(t.Context()) })
		t.Log(err)
		return bmc.KindOf(err) == bmc.KindBusy
	})
}

func TestAlreadyInThatState(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	b.RefuseControl(0xd5)
	c := clientAt(t, b.Addr())
	for _, command := range []bmc.Command{bmc.CommandOff, bmc.CommandOn} {
		receipt, err := c.Send(t.Context(), command)
		require.NoError(t, err)
		assert.True(t, receipt.Already)
	}
	assert.True(t, b.Power(), "already is a claim, not a fact")
}

func TestPrivilegeRefused(t *testing.T) {
	for code, kind := range map[byte]bmc.Kind{
		0x80: bmc.KindPrivilege, 0x81: bmc.KindPrivilege, 0x82: bmc.KindPrivilege, 0xd4: bmc.KindPrivilege,
		0xc1: bmc.KindUnsupported, 0xff: bmc.KindProtocol,
	} {
		b := startGo(t, ipmisim.Options{})
		answering(b, cmdSetPrivilege, code, 1)
		_, err := clientAt(t, b.Addr()).Send(t.Context(), bmc.CommandOff)
		assert.Equal(t, kind, bmc.KindOf(err), "0x%02x: %v", code, err)
		assert.Zero(t, b.Counts().Off)
	}
}

func TestOnlyAbsoluteCommands(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	controls := make(chan byte, 10)
	b.Intercept(func(c ipmisim.Command) *ipmisim.Reply {
		if c.Cmd == cmdChassisControl {
			controls <- c.Data[0]
		}
		return nil
	})
	c := clientAt(t, b.Addr())
	_, err := c.Send(t.Context(), bmc.Command(0))
	assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
	_, err = c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err)
	_, err = c.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err)
	assert.Equal(t, byte(0), <-controls, "power down")
	assert.Equal(t, byte(1), <-controls, "power up")
	assert.Empty(t, controls)
}

func TestStatusBytes(t *testing.T) {
	for _, c := range []struct {
		data  []byte
		state bmc.PowerState
		raw   string
		fault string
	}{
		{[]byte{0x21, 0x10, 0x40}, bmc.On, "chassis status 0x211040", ""},
		{[]byte{0x20, 0, 0}, bmc.Off, "chassis status 0x200000", ""},
		{[]byte{0x10, 0, 0, 0}, bmc.Off, "chassis status 0x10000000", "power control fault"},
		{[]byte{0x0e, 0, 0, 0, 9}, bmc.Off, "chassis status 0x0e000000", "main power fault, interlock, power overload"},
		{[]byte{0x00, 0x00}, bmc.Unknown, "chassis status 0x0000", ""},
		{nil, bmc.Unknown, "chassis status 0x", ""},
	} {
		b := startGo(t, ipmisim.Options{})
		b.Intercept(func(cmd ipmisim.Command) *ipmisim.Reply {
			if cmd.Cmd == cmdChassisStatus {
				return &ipmisim.Reply{Data: c.data}
			}
			return nil
		})
		r, err := clientAt(t, b.Addr()).Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, c.state, r.State)
		assert.Equal(t, c.raw, r.Raw)
		assert.Equal(t, c.fault, r.Fault)
	}
}

// TestLostReplyToOff loses every reply after the command: whether the host went
// off cannot be told from here.
// untilOff is the time of a caller who waits in vain until the host is off.
func untilOff(t *testing.T, b ipmisim.BMC) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for b.Power() && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return ctx
}

func TestLostReplyToOff(t *testing.T) {
	onPeers(t, ipmisim.Options{}, func(t *testing.T, _ peer, b ipmisim.BMC) {
		relay := relayTo(t, b)
		c := clientAt(t, relay.Addr())
		_, err := c.Send(t.Context(), bmc.CommandOn) // raises the privilege
		require.NoError(t, err)
		relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
			if d.FromBMC {
				return nil
			}
			return []ipmisim.Datagram{d}
		})
		_, err = c.Send(untilOff(t, b), bmc.CommandOff)
		var e *bmc.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, bmc.SentMaybe, e.Sent)
		assert.Equal(t, bmc.KindUnreachable, e.Kind)
		assert.False(t, b.Power(), "it was carried out")
		relay.Filter(nil)
		r, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, bmc.Off, r.State)
	})
}
