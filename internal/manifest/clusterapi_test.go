package manifest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
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
		Namespace: "ns", Name: "m", UID: "u", Created: since,
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
	found := must.Do(manifest.DecodePolicies("f.yaml", []byte(text)))(t)
	require.Len(t, found.Checks, 1)
	assert.Equal(t, policy.MarkOwners, found.Checks[0].Strategy)
	_, err := manifest.DecodePolicies("f.yaml", []byte(text+"    nodeStartupTimeout: 5m\n"))
	assert.ErrorContains(t, err, "f.yaml:9: spec.checks.nodeStartupTimeout: unknown key")
}

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
		Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "workers", UID: "u",
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
	found := must.Do(manifest.DecodePolicies("f.yaml", []byte(nodeCheckFile)))(t)
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

func snapshot(t *testing.T, text string) policy.Snapshot {
	t.Helper()
	var o manifest.Objects
	require.NoError(t, o.Add("in.yaml", []byte(text)))
	return o.Snapshot()
}

func nodeNames(s policy.Snapshot) (names []string) {
	for name := range s.Nodes {
		names = append(names, name)
	}
	return names
}

func TestDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		nodes []string
	}{
		"one":                  {"{apiVersion: v1, kind: Node, metadata: {name: a}}", []string{"a"}},
		"several":              {"---\n{apiVersion: v1, kind: Node, metadata: {name: a}}\n--- # next\n{apiVersion: v1, kind: Node, metadata: {name: b}}\n---\n", []string{"a", "b"}},
		"carriage returns":     {"apiVersion: v1\r\nkind: Node\r\nmetadata: {name: a}\r\n---\r\napiVersion: v1\r\nkind: Node\r\nmetadata: {name: b}\r\n", []string{"a", "b"}},
		"ended by dots":        {"{apiVersion: v1, kind: Node, metadata: {name: a}}\n...\n---\n{apiVersion: v1, kind: Node, metadata: {name: b}}", []string{"a", "b"}},
		"marker in a text":     {"apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      no document\n", []string{"a"}},
		"JSON":                 {`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}`, []string{"a"}},
		"JSON, several":        {`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}` + "\n" + `{"apiVersion":"v1","kind":"Node","metadata":{"name":"b"}}`, []string{"a", "b"}},
		"list":                 {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: a}}]}", []string{"a"}},
		"list in a list":       {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: NodeList, items: [{metadata: {name: a}}]}]}", []string{"a"}},
		"typed list":           {"{apiVersion: v1, kind: NodeList, items: [{metadata: {name: a}}]}", []string{"a"}},
		"list without items":   {"{apiVersion: v1, kind: List, items: null}", nil},
		"anchors":              {"apiVersion: v1\nkind: List\nitems:\n- &n {apiVersion: v1, kind: Node, metadata: {name: a}}\n- *n\n", []string{"a"}},
		"comment before":       {"# saved\n---\n{apiVersion: v1, kind: Node, metadata: {name: a}}", []string{"a"}},
		"number as a name key": {"{apiVersion: v1, kind: Node, metadata: {name: a, labels: {1: one}}}", []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, c.text)
			assert.ElementsMatch(t, c.nodes, nodeNames(s))
			assert.Empty(t, s.Errors)
			assert.Empty(t, s.Undecoded)
		})
	}
}

// TestLost: what cannot be read is remembered, and the rest is read.
func TestLost(t *testing.T) {
	const good = "\n---\n{apiVersion: v1, kind: Node, metadata: {name: good}}\n"
	anything := policy.ObjectKey{}
	for name, c := range map[string]struct {
		text, object, message string
		key                   policy.ObjectKey
	}{
		"broken":             {"a: b: c", "in.yaml", "line 1: mapping values are not allowed", anything},
		"behind the end":     {"{apiVersion: v1, kind: ConfigMap}\n...\nx: y", "in.yaml", "line 2: did not find expected <document start>", anything},
		"a word":             {"node", "in.yaml:1", `"node" is not a Kubernetes object`, anything},
		"a list":             {"[a]", "in.yaml:1", "a list is not a Kubernetes object", anything},
		"no kind":            {"{apiVersion: v1}", "in.yaml:1", "apiVersion or kind is missing", anything},
		"kind is no text":    {"{apiVersion: v1, kind: 7}", "in.yaml:1", "apiVersion or kind is missing", anything},
		"key twice":          {"kind: Node\nkind: Node", "in.yaml", "line 2: key kind occurs twice", anything},
		"key is a list":      {"{[a]: b}", "in.yaml", "a key must be one word", anything},
		"items are no list":  {"{apiVersion: v1, kind: List, items: x}", "in.yaml:1", `items: "x" is not a list`, anything},
		"item is no object":  {"{apiVersion: v1, kind: List, items: [x]}", "in.yaml:1 items[0]", `"x" is not a Kubernetes object`, anything},
		"no name":            {"{apiVersion: v1, kind: Node}", "Node (no name)", "in.yaml:1: metadata.name is missing", policy.ObjectKey{Kind: "Node"}},
		"other version":      {"{apiVersion: machine.openshift.io/v1, kind: Machine, metadata: {namespace: a, name: m}}", "Machine a/m", "this version does not read machine.openshift.io/v1", policy.ObjectKey{Kind: "Machine", Namespace: "a", Name: "m", Group: "machine.openshift.io"}},
		"nodeRef is empty":   {"{apiVersion: machine.openshift.io/v1beta1, kind: Machine, metadata: {namespace: a, name: m}, status: {nodeRef: {}}}", "Machine a/m", "status.nodeRef.name: is missing", policy.ObjectKey{Kind: "Machine", Namespace: "a", Name: "m", Group: "machine.openshift.io"}},
		"label is a boolean": {"{apiVersion: v1, kind: Node, metadata: {name: n, labels: {a: true}}}", "Node n", "metadata.labels: the value of a, true, is not a text", policy.ObjectKey{Kind: "Node", Name: "n"}},
		"host flag is text":  {`{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {namespace: a, name: h}, spec: {online: "yes"}}`, "BareMetalHost a/h", `spec.online: "yes" is not true or false`, policy.ObjectKey{Kind: "BareMetalHost", Namespace: "a", Name: "h"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, c.text+good)
			require.Len(t, s.Errors, 1)
			assert.Equal(t, c.object, s.Errors[0].Object)
			assert.Contains(t, s.Errors[0].Message, c.message)
			assert.Equal(t, []policy.ObjectKey{c.key}, s.Undecoded)
			assert.Equal(t, []string{"good"}, nodeNames(s))
		})
	}
}

func TestUnreadable(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "comments": "# a\n---\n# b\n", "broken": "{", "only markers": "---\n---\n"} {
		t.Run(name, func(t *testing.T) {
			err := new(manifest.Objects).Add("in.yaml", []byte(text))
			require.ErrorIs(t, err, manifest.ErrUnreadable)
			assert.ErrorContains(t, err, "decode in.yaml: ")
		})
	}
	var o manifest.Objects
	assert.ErrorIs(t, o.Read("stream", iotest.ErrReader(iotest.ErrTimeout)), iotest.ErrTimeout)
}

// TestBombs: an input must not cost more than its size suggests.
func TestBombs(t *testing.T) {
	begun := time.Now()
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	err := new(manifest.Objects).Add("in.yaml", []byte(deep))
	require.ErrorContains(t, err, "nested too deeply")

	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		a, b := string(rune('0'+i)), string(rune('1'+i))
		laughs += "a" + b + ": &a" + b + " [" + strings.Repeat("*a"+a+", ", 9) + "*a" + a + "]\n"
	}
	err = new(manifest.Objects).Add("in.yaml", []byte(laughs))
	require.ErrorContains(t, err, "too many values")
	assert.Less(t, time.Since(begun), time.Minute)
}

// TestJSON: the fast way for JSON gives what YAML gives.
func TestJSON(t *testing.T) {
	for _, limit := range []string{`2`, `-1`, `"40%"`, `1.5`, `5000000000`, `1e400`, `true`, `null`, `[1]`, `{"a": 1}`} {
		text := `{"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineHealthCheck",
			"metadata": {"namespace": "ns", "name": "c"}, "spec": {"maxUnhealthy": ` + limit + `}}`
		asJSON, asYAML := snapshot(t, text), snapshot(t, "# so that it is no JSON\n"+strings.ReplaceAll(text, "\n\t\t\t", " "))
		require.Len(t, asJSON.Checks, 1)
		asJSON.Checks[0].Source, asYAML.Checks[0].Source = "", ""
		assert.Equal(t, asJSON, asYAML, limit)
	}
}
