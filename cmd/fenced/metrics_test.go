package main

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
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
func (oneHost) Checked(context.Context, hosts.Checked)                    {}

func TestMetricsOfBMCs(t *testing.T) {
	store, err := boltstore.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer store.Close()
	m := newMetrics("1")
	e, err := engine.New(t.Context(), engine.Options{Store: store, Events: event.NewStream(), Hosts: inventory{}})
	require.NoError(t, err)
	refuse := func(bmc.Device) (bmc.Power, error) { return nil, &bmc.Error{Kind: bmc.KindAuth, Err: assert.AnError} }
	s := sweep.New(sweep.Options{Engine: oneHost{}, Open: refuse, Urgent: refuse, ReadTimeout: time.Second, Concurrency: 1,
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
