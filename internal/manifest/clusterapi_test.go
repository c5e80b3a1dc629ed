package manifest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/law"
)

// TestClusterAPIShapes: the same check in both versions is the same check.
func TestClusterAPIShapes(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		second := func(label string) int64 { return rapid.Int64Range(0, 100_000).Draw(t, label) }
		startup, node, machine := second("startup"), second("node"), second("machine")
		limit := rapid.SampledFrom([]any{int64(3), "40%", "10", int64(-1), nil}).Draw(t, "limit")
		span := rapid.SampledFrom([]any{"[1-3]", "[3-1]", "x", nil}).Draw(t, "range")
		var old, current map[string]any
		if rapid.Bool().Draw(t, "template") {
			current = map[string]any{"apiVersion": "x/v1", "kind": "RequestTemplate", "name": "t"}
			old = map[string]any{"apiVersion": "x/v1", "kind": "RequestTemplate", "name": "t", "namespace": "other"}
		}
		text := func(s int64) string { return fmt.Sprintf("%d.75s", s) }
		whole := func(kind string, s int64) []any {
			return []any{map[string]any{"type": kind, "status": "False", "timeoutSeconds": s}}
		}
		timed := func(kind string, s int64) []any {
			return []any{map[string]any{"type": kind, "status": "False", "timeout": text(s)}}
		}
		a := manifest.MachineHealthCheck(clusterCheck(policy.ClusterAPIV1Beta1, map[string]any{
			"unhealthyConditions": timed("Ready", node), "unhealthyMachineConditions": timed("EtcdPodHealthy", machine),
			"nodeStartupTimeout": text(startup), "maxUnhealthy": limit, "unhealthyRange": span, "remediationTemplate": orNil(old),
		}))
		b := manifest.MachineHealthCheck(clusterCheck(policy.ClusterAPIV1Beta2, map[string]any{
			"checks": map[string]any{
				"unhealthyNodeConditions": whole("Ready", node), "unhealthyMachineConditions": whole("EtcdPodHealthy", machine),
				"nodeStartupTimeoutSeconds": startup,
			},
			"remediation": map[string]any{
				"triggerIf":   map[string]any{"unhealthyLessThanOrEqualTo": limit, "unhealthyInRange": span},
				"templateRef": orNil(current),
			},
		}))
		stateA, _ := a.State()
		stateB, _ := b.State()
		assert.Equal(t, stateA, stateB)
		b.APIVersion = a.APIVersion
		assert.Equal(t, a, b)
	})
}

func clusterCheck(version string, spec map[string]any) map[string]any {
	spec["clusterName"] = "c"
	spec["selector"] = map[string]any{"matchLabels": map[string]any{"pool": "w"}}
	return map[string]any{
		"apiVersion": version, "kind": "MachineHealthCheck",
		"metadata": map[string]any{"namespace": "ns", "name": "c", "annotations": map[string]any{"fenced.io/evaluator": "us"}},
		"spec":     spec,
	}
}

func orNil(m map[string]any) any {
	if m == nil {
		return nil
	}
	return m
}

func TestClusterAPICheck(t *testing.T) {
	checks := snapshot(t, `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {namespace: ns, name: c, uid: u, annotations: {cluster.x-k8s.io/paused: "", fenced.io/evaluator: us}}
spec:
  clusterName: prod
  selector: {matchLabels: {pool: w}}
  checks:
    nodeStartupTimeoutSeconds: 1200
    unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}]
    unhealthyMachineConditions: [{type: EtcdPodHealthy, status: "False", timeoutSeconds: 60}]
  remediation:
    triggerIf: {unhealthyLessThanOrEqualTo: 40%, unhealthyInRange: "[1-3]"}
    templateRef: {apiVersion: x/v1, kind: RequestTemplate, name: t}
`).Checks
	require.Len(t, checks, 1)
	c := checks[0]
	assert.Empty(t, c.Invalid)
	assert.Equal(t, "cluster.x-k8s.io/cluster-name=prod,pool=w", c.Selector.String())
	assert.Equal(t, "prod", c.ClusterName)
	assert.Equal(t, 20*time.Minute, c.StartupTimeout)
	assert.Equal(t, []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: 5 * time.Minute}}, c.Conditions)
	assert.Equal(t, []policy.UnhealthyCondition{{Type: "EtcdPodHealthy", Status: "False", Timeout: time.Minute}}, c.MachineConditions)
	assert.Equal(t, &intstr.IntOrString{Type: intstr.String, StrVal: "40%"}, c.MaxUnhealthy)
	assert.Equal(t, "[1-3]", c.UnhealthyRange)
	assert.Equal(t, policy.CreateRequests, c.Strategy)
	assert.Equal(t, &policy.Template{APIVersion: "x/v1", Kind: "RequestTemplate", Namespace: "ns", Name: "t"}, c.Template)
	assert.True(t, c.Paused)
	assert.Equal(t, "us", c.Evaluator)
}

func TestClusterAPIMachine(t *testing.T) {
	since := time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)
	want := policy.Machine{
		Namespace: "ns", Name: "m", UID: "u", ResourceVersion: "7", Created: since,
		Labels:      map[string]string{"cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/control-plane": ""},
		Annotations: map[string]string{"cluster.x-k8s.io/remediate-machine": "no"},
		Phase:       "Running", NodeName: "n", ProviderID: "metal3://1", ClusterName: "c", ControlPlane: true,
		ControllerOwner:          policy.Owner{Kind: "KubeadmControlPlane", Name: "kcp", UID: "o"},
		Conditions:               []policy.Condition{{Type: "OwnerRemediated", Status: "False", LastTransition: since}},
		InfrastructureReadySince: since, OwnerRemediated: "False", RemediateRequested: true,
	}
	for version, status := range map[string]string{
		policy.ClusterAPIV1Beta2: `{phase: Running, nodeRef: {name: n}, conditions: [OWNER, READY]}`,
		policy.ClusterAPIV1Beta1: `{phase: Running, nodeRef: {kind: Node, name: n}, conditions: [READY], v1beta2: {conditions: [OWNER]}}`,
	} {
		text := fmt.Sprintf(`
apiVersion: %s
kind: Machine
metadata:
  namespace: ns
  name: m
  uid: u
  resourceVersion: "7"
  creationTimestamp: "2025-12-31T00:00:00Z"
  labels: {cluster.x-k8s.io/cluster-name: c, cluster.x-k8s.io/control-plane: ""}
  annotations: {cluster.x-k8s.io/remediate-machine: "no"}
  ownerReferences: [{kind: Cluster, name: c, uid: c}, {kind: KubeadmControlPlane, name: kcp, uid: o, controller: true}]
spec: {clusterName: c, providerID: "metal3://1"}
status: %s
`, version, status)
		owner := `{type: OwnerRemediated, status: "False", lastTransitionTime: "2025-12-31T00:00:00Z"}`
		ready := `{type: InfrastructureReady, status: "True", lastTransitionTime: "2025-12-31T00:00:00Z"}`
		s := snapshot(t, strings.NewReplacer("OWNER", owner, "READY", ready).Replace(text))
		require.Empty(t, s.Errors)
		require.Len(t, s.Machines, 1)
		want := want
		want.APIVersion = version
		if version == policy.ClusterAPIV1Beta2 {
			want.Conditions = append(want.Conditions[:1:1], policy.Condition{Type: "InfrastructureReady", Status: "True", LastTransition: since})
		}
		assert.Equal(t, want, s.Machines[0], version)
	}
}

func TestClusterAPICluster(t *testing.T) {
	since := time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC)
	s := snapshot(t, `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: ns, name: c}
spec: {paused: true}
status:
  initialization: {infrastructureProvisioned: true}
  conditions: [{type: ControlPlaneInitialized, status: "True", lastTransitionTime: "2025-12-31T00:00:00Z"}]
---
{apiVersion: cluster.x-k8s.io/v1beta1, kind: Cluster, metadata: {name: d}, status: {conditions: {}}}
`)
	assert.Equal(t, []policy.Cluster{{
		Namespace: "ns", Name: "c", Paused: true, ControlPlaneInitialized: true, ControlPlaneSince: since, InfrastructureReady: true,
	}}, s.Clusters)
	require.Len(t, s.Errors, 1)
	assert.Equal(t, "status.conditions: an object is not a list", s.Errors[0].Message)
}

func TestClusterAPIPolicyFile(t *testing.T) {
	const text = `apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {namespace: ns, name: c}
spec:
  clusterName: c
  selector: {matchLabels: {pool: w}}
  checks:
    unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}]
`
	found, err := manifest.DecodePolicies("f.yaml", []byte(text))
	require.NoError(t, err)
	require.Len(t, found.Checks, 1)
	assert.Equal(t, policy.MarkOwners, found.Checks[0].Strategy)
	_, err = manifest.DecodePolicies("f.yaml", []byte(text+"    nodeStartupTimeout: 5m\n"))
	assert.ErrorContains(t, err, "f.yaml:9: spec.checks.nodeStartupTimeout: unknown key")
}
