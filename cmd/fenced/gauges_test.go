package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/sweep"
)

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
