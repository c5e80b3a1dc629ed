package ipmi

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

func codes(findings []bmc.Finding) []bmc.FindingCode {
	var all []bmc.FindingCode
	for _, f := range findings {
		all = append(all, f.Code)
	}
	return all
}

func TestAudit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		bmc  func(*testing.T) ipmisim.BMC
		want []bmc.FindingCode
	}{
		{"ipmi_sim takes suite 0", func(t *testing.T) ipmisim.BMC { return startDebian(t, ipmisim.Options{}) },
			[]bmc.FindingCode{bmc.FindingCipherZero}},
		{"ipmi_sim with an account without a name",
			func(t *testing.T) ipmisim.BMC { return startDebian(t, ipmisim.Options{NullUser: true}) },
			[]bmc.FindingCode{bmc.FindingCipherZero, bmc.FindingNullUser}},
		{"go-ipmi refuses suite 0 and does not tell who exists",
			func(t *testing.T) ipmisim.BMC { return startGo(t, ipmisim.Options{NullUser: true}) }, nil},
		{"go-ipmi with suite 3 alone",
			func(t *testing.T) ipmisim.BMC { return startGo(t, ipmisim.Options{Suites: []int{3}}) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := c.bmc(t)
			relay := relayTo(t, b)
			client := clientAt(t, relay.Addr())
			found, err := client.Audit(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.want, codes(found))
			for _, d := range relay.Seen() {
				if d.Payload() == ipmisim.PayloadRAKP3 {
					assert.Len(t, d.Data, headerLen+8, "a refusal: nothing of a password in it")
				}
				assert.NotEqual(t, ipmisim.PayloadIPMI, d.Payload(), "never in a session")
			}
			assert.True(t, b.Power())
		})
	}
}

// TestAuditLeavesNoSession: BMCs have as few as four, and here one is in use.
func TestAuditLeavesNoSession(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	c := clientAt(t, b.Addr())
	pace.Until(t, "the session in use was left alone", func() bool {
		before := bmctest.Read(t, c)
		for range 4 {
			_, err := c.Audit(t.Context())
			require.NoError(t, err)
		}
		assert.Eventually(t, func() bool { return b.Sessions() == 1 }, pace.Tries, 5*time.Millisecond)
		after := bmctest.Read(t, c)
		return before.Session == after.Session
	})
}

// TestSilenceIsNoFinding: a BMC may drop what it does not allow, but one that
// answers nothing at all was not audited.
func TestSilenceIsNoFinding(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{}))
	relay.Filter(losing(func(d ipmisim.Datagram) bool {
		zero := d.Payload() == ipmisim.PayloadOpenRequest && d.Data[headerLen+12] == 0
		return zero || d.Payload() == ipmisim.PayloadRAKP1
	}))
	found, err := clientAt(t, relay.Addr()).Audit(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)

	c := New(hostAt(t, silent(t)), bmc.Timing{ReadTimeout: 300 * time.Millisecond, SendTimeout: time.Second})
	_, err = c.Audit(t.Context())
	assert.Equal(t, bmc.KindUnreachable, bmc.KindOf(err), "%v", err)
}

func TestAuditWithoutASessionLeft(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	require.NoError(t, b.Exhaust())
	_, err := clientAt(t, b.Addr()).Audit(t.Context())
	assert.Equal(t, bmc.KindSessions, bmc.KindOf(err), "%v", err)
}

func TestAuditOfACancelledCaller(t *testing.T) {
	b := startGo(t, ipmisim.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := clientAt(t, b.Addr()).Audit(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}
