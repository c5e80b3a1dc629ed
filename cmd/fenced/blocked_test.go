package main

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

func refusedStatus() engine.ClusterStatus {
	check := policy.CheckID{Kind: "MachineHealthCheck", APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "workers"}
	gate := reason.NewGate("limit", false, reason.ShortCircuit, "3 of 5 not healthy", "at most 2 (40%)", "check ns/workers")
	return engine.ClusterStatus{Name: "prod", Refused: []admit.Refused{
		{Check: check, Node: "n-1", Machine: "ns/m-1", Gate: gate, Since: noon},
		{Check: check, Node: "n-2", Gate: gate, Since: noon, NextTry: noon.Add(time.Minute)},
		{Check: policy.CheckID{Kind: "FencePolicy", Name: "all"}, Node: "n-2", Gate: gate, Since: noon},
		{CheckID: "FencePolicy.fenced.io all in policies.d/a.yaml", Node: "n-3", Run: "r-1", Gate: reason.Gate{Name: "hold", Reason: reason.Hold, Value: "held"}, Since: noon},
	}}
}

func TestBlockedIsWhatIsRefused(t *testing.T) {
	list := blockedIn(refusedStatus())
	require.Len(t, list, 4)
	assert.Equal(t, api.Blocked{Cluster: "prod", Node: "n-1", Machine: "ns/m-1", Check: "MachineHealthCheck ns/workers", Reason: "ShortCircuit", Class: "transient",
		Message: "limit: 3 of 5 not healthy (needed: at most 2 (40%))", Since: noon}, list[0])
	assert.Equal(t, noon.Add(time.Minute), list[1].NextTry)
	assert.Equal(t, "FencePolicy all", list[3].Check, "of the record of a run")
	assert.Equal(t, "r-1", list[3].Run)
}

// The gauge counts targets: one that two checks refuse for one reason counts once.
func TestGaugeOfRefusedTargets(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newRefusedGauge(func() []engine.ClusterStatus { return []engine.ClusterStatus{refusedStatus(), {Name: "dev"}} }))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code, answer.Body)
	var lines []string
	for line := range strings.Lines(answer.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	assert.Equal(t, []string{
		`fenced_targets_refused{cluster="prod",reason="Hold"} 1`,
		`fenced_targets_refused{cluster="prod",reason="ShortCircuit"} 2`,
	}, lines)
}
