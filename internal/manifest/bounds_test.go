package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// All texts of an object together are bounded, too; the many Nodes of a NodeHealthCheck in an outage are not too many, nor are the
// network cards of a large host.
func TestManyTexts(t *testing.T) {
	var conditions, nodes, nics []any
	for i := range 5000 {
		name := fmt.Sprintf("worker-%d.example.org", i)
		nodes = append(nodes, map[string]any{"name": name, "remediations": []any{map[string]any{"templateName": "t",
			"resource": map[string]any{"apiVersion": "fenced.io/v1alpha1", "kind": "FencedRemediation", "name": name}}}})
	}
	for i := range 250 {
		conditions = append(conditions, map[string]any{"type": strings.Repeat("c", 4000), "status": "True"})
		nics = append(nics, map[string]any{"mac": fmt.Sprintf("00:00:00:00:00:%02x", i), "ip": "192.0.2.1"}, map[string]any{"mac": fmt.Sprintf("00:00:00:00:00:%02x", i), "ip": "2001:db8::1"})
	}
	m, err := manifest.Machine(map[string]any{"apiVersion": policy.ClusterAPIV1Beta2, "kind": "Machine", "metadata": map[string]any{"namespace": "tenant", "name": "x"},
		"status": map[string]any{"conditions": conditions}})
	require.ErrorContains(t, err, "together they have more than 131072 bytes")
	assert.Equal(t, 1, strings.Count(err.Error(), "together"))
	size := 0
	for _, c := range m.Conditions {
		size += len(c.Type)
	}
	assert.LessOrEqual(t, size, 1<<17)

	c := manifest.NodeHealthCheck(map[string]any{"apiVersion": policy.Medik8sAPI, "kind": "NodeHealthCheck", "metadata": map[string]any{"name": "nhc"},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "minHealthy": "51%", "remediationTemplate": map[string]any{
			"apiVersion": "fenced.io/v1alpha1", "kind": "FencedRemediationTemplate", "namespace": "n", "name": "t"}},
		"status": map[string]any{"unhealthyNodes": nodes}})
	assert.Empty(t, c.Invalid)
	assert.Len(t, c.Attempts, 5000)

	h, err := manifest.BareMetalHost(map[string]any{"metadata": map[string]any{"namespace": "n", "name": "h"},
		"spec": map[string]any{"bmc": map[string]any{"address": "ipmi://192.0.2.1", "credentialsName": "s"}}, "status": map[string]any{"hardware": map[string]any{"nics": nics}}})
	assert.NoError(t, err)
	assert.Len(t, h.NICs, 128)
}
