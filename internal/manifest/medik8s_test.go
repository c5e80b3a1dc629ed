package manifest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

const nodeCheckFile = `apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: workers, uid: u, resourceVersion: "7", annotations: {fenced.io/cluster: prod}}
spec:
  selector: {matchExpressions: [{key: node-role.kubernetes.io/worker, operator: Exists}]}
  unhealthyConditions:
  - {type: Ready, status: "False", duration: 60s}
  - {type: DiskPressure, status: "True", duration: 1h30m}
  minHealthy: 51%
  pauseRequests: [backup]
  healthyDelay: -1s
  stormCooldownDuration: 10m
  escalatingRemediations:
  - order: 9
    timeout: 10m
    remediationTemplate: {apiVersion: fence-agents-remediation.medik8s.io/v1alpha1, kind: FenceAgentsRemediationTemplate, namespace: medik8s, name: far}
  - order: 3
    timeout: 60s
    remediationTemplate: {apiVersion: self-node-remediation.medik8s.io/v1alpha1, kind: SelfNodeRemediationTemplate, namespace: medik8s, name: snr}
status:
  observedNodes: 3
  phase: Remediating
  unhealthyNodes:
  - name: n-1
    healthyDelayed: true
    remediations:
    - resource: {apiVersion: self-node-remediation.medik8s.io/v1alpha1, kind: SelfNodeRemediation, namespace: medik8s, name: n-1, uid: r}
      templateName: snr
      started: "2026-01-02T03:04:05Z"
      timedOut: "2026-01-02T03:05:05Z"
    - resource: {apiVersion: fence-agents-remediation.medik8s.io/v1alpha1, kind: FenceAgentsRemediation, namespace: medik8s, name: n-1}
      started: "2026-01-02T03:05:06Z"
  - name: n-2
  conditions:
  - {type: Disabled, status: "False", lastTransitionTime: "2026-01-02T03:04:05Z"}
  - {type: StormActive, status: "True", lastTransitionTime: "2026-01-02T03:00:05Z"}
  - {type: StormCooldownActive, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z"}
`

// TestNodeHealthCheck reads every field, as the API server writes it.
func TestNodeHealthCheck(t *testing.T) {
	s := snapshot(t, nodeCheckFile)
	require.Empty(t, s.Errors)
	require.Len(t, s.Checks, 1)
	c := s.Checks[0]
	assert.Equal(t, "node-role.kubernetes.io/worker", c.Selector.String())
	c.Selector = nil
	const farAPI, snrAPI = "fence-agents-remediation.medik8s.io/v1alpha1", "self-node-remediation.medik8s.io/v1alpha1"
	assert.Equal(t, policy.Check{
		Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "workers", UID: "u", ResourceVersion: "7",
		Annotations: map[string]string{"fenced.io/cluster": "prod"}, Clusters: []string{"prod"}, Source: "in.yaml:1", SelectsNodes: true,
		Conditions: []policy.UnhealthyCondition{
			{Type: "Ready", Status: "False", Timeout: time.Minute}, {Type: "DiskPressure", Status: "True", Timeout: 90 * time.Minute},
		},
		MinHealthy: new(intstr.FromString("51%")), PauseRequests: []string{"backup"}, Strategy: policy.CreateRequests,
		Escalation: []policy.Escalation{
			{Template: policy.Template{APIVersion: snrAPI, Kind: "SelfNodeRemediationTemplate", Namespace: "medik8s", Name: "snr"}, Order: 3, Timeout: time.Minute},
			{Template: policy.Template{APIVersion: farAPI, Kind: "FenceAgentsRemediationTemplate", Namespace: "medik8s", Name: "far"}, Order: 9, Timeout: 10 * time.Minute},
		},
		HealthyDelay: -time.Second, StormCooldown: 10 * time.Minute, Storm: policy.Storm{Active: true, CooldownSince: stamp},
		Attempts: map[string][]policy.Attempt{"n-1": {
			{APIVersion: snrAPI, Kind: "SelfNodeRemediation", TemplateName: "snr", Started: stamp, TimedOut: stamp.Add(time.Minute)},
			{APIVersion: farAPI, Kind: "FenceAgentsRemediation", Started: stamp.Add(61 * time.Second)},
		}},
	}, c)
}

// TestNodeHealthCheckFile: a manifest that was saved from a cluster is a policy
// as it is, but what its status remembers was another time.
func TestNodeHealthCheckFile(t *testing.T) {
	found, err := manifest.DecodePolicies("f.yaml", []byte(nodeCheckFile))
	require.NoError(t, err)
	require.Len(t, found.Checks, 1)
	assert.Equal(t, "f.yaml:1", found.Checks[0].Source)
	assert.Empty(t, found.Checks[0].Attempts)
	assert.Zero(t, found.Checks[0].Storm)

	for text, want := range map[string]string{
		"spec: {selector: {matchLabels: {a: b}}, nodeSelector: {}}":                                          "f.yaml:4: spec.nodeSelector: unknown key",
		"spec: {selector: {matchLabels: {a: b}}, minHealthy: 1}":                                             "f.yaml:4: spec.remediationTemplate: is missing",
		"spec: {selector: {matchLabels: {a: b}}}":                                                            "f.yaml:4: spec.minHealthy: is missing, and so is spec.maxUnhealthy (set one of them)",
		"spec:\n  selector: {matchLabels: {a: b}}\n  minHealthy: 1\n  maxUnhealthy: 1":                       "f.yaml:6: spec.minHealthy: 1 and spec.maxUnhealthy: 1 are both set",
		"spec:\n  selector: {matchLabels: {a: b}}\n  escalatingRemediations:\n  - order: 1\n    timeout: 1s": `f.yaml:8: spec.escalatingRemediations[0].timeout: "1s" is less than 1m0s`,
	} {
		_, err := manifest.DecodePolicies("f.yaml", []byte("apiVersion: remediation.medik8s.io/v1alpha1\nkind: NodeHealthCheck\nmetadata: {name: x}\n"+text+"\n"))
		assert.ErrorContains(t, err, want)
	}
}

// TestRequestOfNodeHealthCheck reads everything that medik8s writes on a
// request.
func TestRequestOfNodeHealthCheck(t *testing.T) {
	s := snapshot(t, `
apiVersion: self-node-remediation.medik8s.io/v1alpha1
kind: SelfNodeRemediation
metadata:
  namespace: medik8s
  name: n-1-x7k2p
  uid: r
  creationTimestamp: "2026-01-02T03:04:05Z"
  deletionTimestamp: "2026-01-02T03:04:05Z"
  labels: {remediation.medik8s.io/isControlPlaneNode: "", app.kubernetes.io/part-of: node-healthcheck-controller}
  annotations:
    remediation.medik8s.io/node-name: n-1
    remediation.medik8s.io/template-name: snr
    remediation.medik8s.io/nhc-timed-out: "2026-01-02T03:04:05Z"
    remediation.medik8s.io/healthy-delay: "2026-01-02T03:04:05Z"
  ownerReferences:
  - {apiVersion: remediation.medik8s.io/v1alpha1, kind: NodeHealthCheck, name: workers, uid: u, controller: false}
  - {apiVersion: machine.openshift.io/v1beta1, kind: Machine, name: m-1, uid: mu}
spec: {anything: [1]}
status:
  conditions: [{type: Succeeded, status: Unknown, lastTransitionTime: "2026-01-02T03:04:05Z"}]
`)
	require.Empty(t, s.Errors)
	assert.Equal(t, []policy.Request{{
		APIVersion: "self-node-remediation.medik8s.io/v1alpha1", Kind: "SelfNodeRemediation", Namespace: "medik8s", Name: "n-1-x7k2p",
		Owners: []policy.Owner{
			{Kind: policy.NodeHealthCheckKind, Name: "workers", UID: "u"}, {Kind: "Machine", Name: "m-1", UID: "mu"},
		},
		UID: "r", Deleting: true, Begun: true, NodeName: "n-1", TemplateName: "snr", Created: stamp, ControlPlane: true, TimedOut: stamp, HealthyDelaySince: stamp,
		Conditions: []policy.Condition{{Type: "Succeeded", Status: "Unknown", LastTransition: stamp}},
	}}, s.Requests)
}

// TestClusterVersion: one that cannot be read, or that was read twice with
// different contents, may tell of an upgrade.
func TestClusterVersion(t *testing.T) {
	head := "apiVersion: config.openshift.io/v1\nkind: ClusterVersion\nmetadata: {name: version}\nstatus: {conditions: "
	const over, under = `[{type: Progressing, status: "False"}]}`, `[{type: Progressing, status: "True"}]}`
	for text, want := range map[string]string{
		head + over:                              "",
		head + under:                             "ClusterVersion version is Progressing",
		head + "[x]}":                            "ClusterVersion version cannot be read",
		head + over + "\n---\n" + head + over:    "",
		head + over + "\n---\n" + head + "null}": "ClusterVersion version is in in.yaml:1 and, with other contents, in in.yaml:6",
	} {
		assert.Equal(t, want, snapshot(t, text).Upgrading)
	}
}
