package sweep

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/ipmisim"
)

// The shipped actors and IPMI client, against BMCs on a real socket: a good one,
// one that takes another password, and a closed port.
func TestSweepOfRealBMCs(t *testing.T) {
	w := newWorld()
	good := peer(t, w, 0, "a long random one")
	other := peer(t, w, 1, "another")
	gone := peer(t, w, 2, "a long random one")
	gone.Stop()
	timing := bmc.Timing{ReadTimeout: 20 * time.Second, SendTimeout: 20 * time.Second}
	actors := power.NewActors(func(d bmc.Device) (bmc.Power, error) { return ipmi.New(d, timing), nil })
	w.sweep = New(Options{Engine: w, Open: actors.Patient(), Urgent: actors.Urgent(), Every: time.Second, ReadTimeout: timing.ReadTimeout,
		Concurrency: DefaultConcurrency, OnEvent: func(event.Event) {}, OnLatency: func(bmc.Driver, time.Duration) {}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.sweep.Run(ctx) }()
	require.Eventually(t, func() bool {
		all, err := w.sweep.Results(t.Context(), "prod")
		return err == nil && len(all) == 3 && all[0].State == StateOK && !all[0].Checked.IsZero() && !all[1].Checked.IsZero() && !all[2].Checked.IsZero()
	}, time.Minute, 20*time.Millisecond)

	r := w.result(t, 0)
	assert.Equal(t, StateOK, r.State)
	assert.Equal(t, bmc.On, r.Power)
	assert.Positive(t, r.Latency)
	assert.Equal(t, reason.Code("BMCAuth"), w.result(t, 1).Reason)
	assert.False(t, w.result(t, 1).Dependable)
	assert.Contains(t, []reason.Code{"BMCRefused", "BMCUnreachable"}, w.result(t, 2).Reason)

	audited, err := w.sweep.Audit(t.Context(), "prod", "n-0")
	require.NoError(t, err)
	assert.Empty(t, audited[0].AuditProblem)
	stop()
	require.NoError(t, <-ended)
	assert.Zero(t, good.Sessions(), "no session is left behind")
	assert.Zero(t, other.Sessions())
	counts := good.Counts()
	assert.Zero(t, counts.Off+counts.On, "nothing was switched")
	assert.Zero(t, other.Counts().Status)
}

// peer is a BMC and its host in the inventory, whose configured password is always
// the same.
func peer(t *testing.T, w *world, n int, password string) *ipmisim.GoBMC {
	t.Helper()
	uuid := "4c4c4544-0011-0000-8000-00000000000" + strconv.Itoa(n)
	b, err := ipmisim.StartGo(t.Context(), ipmisim.Options{User: "fence", Password: password, UUID: uuid})
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	host, text, err := net.SplitHostPort(b.Addr())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	w.device(n, bmc.Device{Driver: bmc.DriverIPMI, Username: "fence", Password: bmc.NewSecret("a long random one"),
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: host, Port: port, Privilege: "OPERATOR"}})
	w.subjects[n].SystemUUID = uuid
	return b
}
