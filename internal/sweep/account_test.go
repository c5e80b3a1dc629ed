package sweep

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
)

func TestARefusedAccountIsNotLocked(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.err = failing(bmc.KindAuth)
	w.run(t, func(t *testing.T) {
		w.wait(every + every/5)
		require.Len(t, m.reads, 1)
		require.Len(t, w.events, 1, "it is told at once")
		assert.Equal(t, "BMCAuth", string(w.events[0].Reason))
		w.wait(24 * time.Hour)
		assert.Less(t, len(m.reads), 30)
		for i := 1; i < len(m.reads); i++ {
			assert.GreaterOrEqual(t, m.reads[i].Sub(m.reads[i-1]), min(accountPause<<(i-1), accountPauseMax))
		}
		require.Len(t, w.events, 1)

		asked := len(m.reads)
		w.change(func() { w.subjects[0] = withPassword(w.subjects[0], "the new one"); m.err = nil })
		w.wait(2*every + every/5)
		require.Greater(t, len(m.reads), asked, "new credentials are tried soon")
		assert.Equal(t, "the new one", m.passwords[asked])
		assert.True(t, w.result(t, 1).Dependable)
	})
}

// 20 outlets of one PDU have one account: it would be locked by the first round.
func TestOneAccountOfManyOutletsIsTriedOnce(t *testing.T) {
	w := newWorld()
	var pdu *machine
	for n := range 20 {
		pdu = w.device(n, bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc_snmp", Endpoint: bmc.Endpoint{Host: "pdu", Port: 161},
			Parameters: map[string]string{"plug": strconv.Itoa(n)}, Username: "apc", Password: bmc.NewSecret("x")})
	}
	pdu.err = failing(bmc.KindAuth)
	w.run(t, func(t *testing.T) {
		w.wait(4 * time.Minute)
		assert.Len(t, pdu.reads, 1)
		for n := range 20 {
			assert.Equal(t, "BMCAuth", string(w.result(t, n).Reason))
			assert.Equal(t, pdu.reads[0].Add(pdu.takes), w.result(t, n).Checked, "nobody was asked since")
		}
		assert.Len(t, w.events, 20)
	})
}

func TestOneAtATimeAtAService(t *testing.T) {
	w := newWorld()
	var pdu *machine
	for n := range 8 {
		pdu = w.device(n, bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "pdu", Port: 23},
			Parameters: map[string]string{"plug": strconv.Itoa(n)}})
	}
	pdu.takes = 4 * time.Second // less than the timeout, and all of them more
	w.run(t, func(t *testing.T) {
		w.wait(10 * time.Minute)
		assert.Zero(t, pdu.clash)
		for i := 1; i < len(pdu.reads); i++ {
			assert.GreaterOrEqual(t, pdu.reads[i].Sub(pdu.reads[i-1]), pdu.takes+serviceGap)
		}
		for n := range 8 {
			assert.Zero(t, w.result(t, n).Failures)
			assert.False(t, w.result(t, n).Checked.IsZero())
		}
	})
}

func withPassword(s hosts.Subject, text string) hosts.Subject {
	d := s.Host.Levels[0].Devices[0]
	d.Password = bmc.NewSecret(text)
	s.Host.Levels = []bmc.Level{{Devices: []bmc.Device{d}}}
	return s
}

// Programs of others start and log in at every look: they have the time that the
// engine gives them.
func TestSlowAgentIsNotDead(t *testing.T) {
	w := newWorld()
	pdu := w.device(1, bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "pdu", Port: 23},
		Parameters: map[string]string{"plug": "1"}})
	pdu.takes = power.AgentReadTimeout - time.Second
	own := w.host(2)
	own.takes = readTimeout + time.Second
	w.run(t, func(t *testing.T) {
		w.wait(5 * time.Minute)
		assert.True(t, w.result(t, 1).Dependable)
		assert.Equal(t, pdu.takes, w.result(t, 1).Latency)
		assert.False(t, w.result(t, 2).Dependable, "a BMC that is asked by fenced itself")
		w.change(func() { pdu.hangs = true })
		w.wait(5 * time.Minute)
		assert.False(t, w.result(t, 1).Dependable)
	})
}
