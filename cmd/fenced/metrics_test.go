package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/test/port"
)

// oneHost is an inventory of one host whose BMC refuses the account.
type oneHost struct{}

func (oneHost) subject() hosts.Subject {
	return hosts.Subject{Cluster: "prod", Node: "n-1", Host: bmc.Host{Name: "prod/n-1", Levels: []bmc.Level{
		{Devices: []bmc.Device{{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "bmc", Port: 623}}}}}}}
}

func (o oneHost) Inventory(context.Context) []hosts.Subject { return []hosts.Subject{o.subject()} }

func (o oneHost) SubjectOf(context.Context, string, string) (hosts.Subject, error) {
	return o.subject(), nil
}

func (oneHost) Identify(context.Context, hosts.Subject, int, int, bmc.Reading) guard.IdentityVerdict {
	return guard.IdentityUnproven
}

func (oneHost) Forbidden(context.Context, hosts.Subject) []reason.Refusal { return nil }

func (oneHost) Checked(context.Context, hosts.Checked) {}

func TestMetricsOfBMCs(t *testing.T) {
	store, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer store.Close()
	m := newMetrics("1")
	e, err := engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}})
	require.NoError(t, err)
	refuse := func(bmc.Device) (bmc.Power, error) { return nil, &bmc.Error{Kind: bmc.KindAuth, Err: assert.AnError} }
	s := sweep.New(sweep.Options{Engine: oneHost{}, Open: refuse, Urgent: refuse, LockOut: e.LockOut, ReadTimeout: time.Second, Concurrency: 1,
		OnEvent: func(event.Event) {}, OnLatency: m.measured})
	_, err = s.Test(t.Context(), "prod", "n-1")
	require.NoError(t, err)
	m.measureState(e, s)
	m.measured(bmc.DriverIPMI, 30*time.Millisecond)

	answer := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code, answer.Body)
	assert.Contains(t, answer.Body.String(), `fenced_bmc_devices{cluster="prod",driver="ipmi",state="failed"} 1`)
	assert.Contains(t, answer.Body.String(), `fenced_bmc_read_seconds_bucket{driver="ipmi",le="0.05"} 1`)
}

// The gauge counts targets: one that two checks refuse for one reason counts once.
func TestGaugeOfRefusedTargets(t *testing.T) {
	registry := prometheus.NewRegistry()
	status := func() []engine.ClusterStatus { return []engine.ClusterStatus{refusedStatus(), {Name: "dev"}} }
	tally := func() (map[sweep.Group]int, map[string]int) { return nil, nil }
	registry.MustRegister(newGauges(status, tally))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code, answer.Body)
	var lines []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "fenced_targets_refused") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	assert.Equal(t, []string{
		`fenced_targets_refused{cluster="prod",reason="Hold"} 1`,
		`fenced_targets_refused{cluster="prod",reason="ShortCircuit"} 2`,
	}, lines)
}

// Any user of the host can take the port of the metrics. The daemon goes on without them,
// says so once, and serves them as soon as it can.
func TestBusyMetricsPortStopsNothing(t *testing.T) {
	addr, err := port.Free("tcp", "127.0.0.1")
	require.NoError(t, err)
	other, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	core, logs := observer.New(zap.InfoLevel)
	ctx, stop := context.WithCancel(t.Context())
	d := &fenced{metrics: newMetrics("1")}
	door := openMetrics(addr, zap.New(core))
	ended := make(chan error, 1)
	go func() { ended <- door.keep(ctx, d.pages()) }()
	time.Sleep(scrapeRetry + scrapeRetry/2) // one try more
	require.Equal(t, 1, logs.FilterLevelExact(zap.WarnLevel).Len(), "it is told once")

	require.NoError(t, other.Close())
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, 1, logs.FilterMessage("metrics are served again").Len())
	stop()
	require.NoError(t, <-ended)
}
