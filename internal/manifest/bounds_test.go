package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

// What a tenant writes is kept, compared and shown, so it is bounded where it comes in.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	meta := map[string]any{"namespace": "tenant", "name": "x", "annotations": map[string]any{"other": long, "cluster.x-k8s.io/paused": long}}
	check := func(spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "kind": "MachineHealthCheck", "metadata": meta, "spec": spec}
	}
	machine := func(field string, value any) map[string]any {
		return map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "kind": "Machine", "metadata": meta, field: value}
	}
	many := make([]any, 300)
	for i := range many {
		many[i] = map[string]any{"type": "t", "status": "s"}
	}
	labels := map[string]any{}
	for i := range 2000 {
		labels[strings.Repeat("k", 40)+strings.Repeat("i", i%20)+long[:i]] = "v"
	}

	c := manifest.MachineHealthCheck(check(map[string]any{"maxUnhealthy": long}))
	assert.Contains(t, c.Invalid, "spec.maxUnhealthy: is 1048576 bytes long, more than 4096")
	assert.True(t, c.Paused, "the annotation is there, whatever its length")
	assert.Less(t, len(c.Annotations["cluster.x-k8s.io/paused"]), 5000)
	assert.NotContains(t, c.Annotations, "other")
	assert.Less(t, len(c.MaxUnhealthy.StrVal), 5000)

	c = manifest.MachineHealthCheck(check(map[string]any{"selector": map[string]any{"matchLabels": labels}}))
	assert.Contains(t, c.Invalid, "spec.selector.matchLabels: are ")
	assert.Nil(t, c.Selector)

	for want, fields := range map[string]map[string]any{
		"spec.providerID: is 1048576 bytes long": machine("spec", map[string]any{"providerID": long}),
		"status.phase: is 1048576 bytes long":    machine("status", map[string]any{"phase": long}),
	} {
		_, err := manifest.Machine(fields)
		assert.ErrorContains(t, err, want)
	}
	request, err := manifest.Request(map[string]any{"apiVersion": "a/v1", "kind": "K", "metadata": meta, "status": map[string]any{"conditions": many}})
	assert.ErrorContains(t, err, "status.conditions: has 300 entries, more than 256")
	assert.Empty(t, request.Conditions)
}
