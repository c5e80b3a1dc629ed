package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/timeline"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// benchNodes is how large the cluster of the benchmarks is, and benchDown how many of its Nodes are down: more than the limit
// of the check allows, so that each is blocked.
const (
	benchNodes = 10_000
	benchDown  = 1_000
)

// bigCluster is a daemon's control over a cluster of benchNodes, each with a BMC, one check and one zone of a hundred.
func bigCluster(b *testing.B) control {
	f := fake.New("c")
	f.Do(func(s *fake.State) {
		for i := range benchNodes {
			name := fmt.Sprintf("node-%05d", i)
			s.AddHost(fake.Host{Name: name, UUID: fmt.Sprintf("4c4c4544-0042-3510-8054-00000%07x", i), Zone: fmt.Sprint("zone-", i%100), StartsWithMains: true}, policy.Machine{})
			s.Entries[name] = bmc.Host{Name: "c/" + name, IdentityMode: "required", Source: "hosts.d/racks.yaml", Levels: []bmc.Level{{Devices: []bmc.Device{{
				Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: name + ".test", Port: 623}}}}}}
		}
		s.Check = &policy.Check{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "all", Selector: labels.Everything(), SelectsNodes: true, Strategy: policy.PowerCycleHosts,
			MaxUnhealthy: new(intstr.FromString("5%")), Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Second}}}
		s.ShowCheck(s.Check)
	})
	for i := range benchDown {
		f.Handle(fmt.Sprintf("node-%05d", i*(benchNodes/benchDown))).SetReadySince("Unknown", time.Now().Add(-time.Hour))
	}
	store := must.Do(boltstore.Open(filepath.Join(b.TempDir(), "state.db")))(b)
	b.Cleanup(func() { _ = store.Close() })
	events := event.NewStream()
	e := must.Do(engine.New(b.Context(), engine.Options{
		Store: store, Hosts: f, Open: f.Open, Events: events,
		Clusters: []engine.ClusterOptions{{Name: "c", Mode: guard.ModeEvaluate, Isolation: remediate.IsolateDelete, IdentityMode: "required", Watch: f.Watch(), Kube: f, RackKey: "rack"}},
		Guards:   guard.Limits{ViewMaxAge: time.Minute, ClockSkewMax: time.Minute, ZoneKey: "zone"},
		Power:    power.ReadTiming{ReadTimeout: 5 * time.Second, OffReadSpacing: 3 * time.Second},
	}))(b)
	s := sweep.New(sweep.Options{Engine: e, Open: f.Open, Urgent: f.Open, LockOut: e.LockOut, ReadTimeout: time.Second, Concurrency: 64,
		OnEvent: func(event.Event) {}, OnLatency: func(bmc.Driver, time.Duration) {}})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 2)
	go func() { ended <- e.Run(ctx, func() {}) }()
	go func() { ended <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-ended)
		require.NoError(b, <-ended)
	})
	c := control{engine: e, sweep: s, events: events, store: store, audit: &auditor{err: errors.New("none")}, notes: timeline.New(), level: zap.NewAtomicLevel(), reloader: &reloader{}, clusters: &clusters{}, surveys: newSurveys()}
	require.Eventually(b, func() bool {
		st, err := c.Status(ctx)
		return err == nil && len(st.Blocked) == benchDown && st.BMCs.Total == benchNodes
	}, 5*time.Minute, 100*time.Millisecond)
	return c
}

// BenchmarkAnswers is what the two answers cost that a page reads about once a second.
func BenchmarkAnswers(b *testing.B) {
	c := bigCluster(b)
	for name, ask := range map[string]func(context.Context) (any, error){
		"status": func(ctx context.Context) (any, error) { return c.Status(ctx) },
		"nodes":  func(ctx context.Context) (any, error) { return c.Nodes(ctx, wire.NodesFilter{}) },
	} {
		b.Run(name, func(b *testing.B) {
			bytes := 0
			for b.Loop() {
				c.surveys = newSurveys() // each surveys the BMCs by itself
				bytes = len(must.Do(json.Marshal(must.Do(ask(b.Context()))(b)))(b))
			}
			b.ReportMetric(float64(bytes), "bytes")
		})
	}
}
