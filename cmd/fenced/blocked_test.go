package main

import (
	"testing"
	"time"

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
