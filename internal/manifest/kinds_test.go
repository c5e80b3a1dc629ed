package manifest_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/crds"
	"github.com/fenced/fenced/test/must"
)

var stamp = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestMachine reads every field, as the API server writes it.
func TestMachine(t *testing.T) {
	s := snapshot(t, `
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata:
  namespace: ns
  name: m-1
  uid: u-1
  resourceVersion: "42"
  deletionTimestamp: 2026-01-02T03:04:05Z
  labels: {machine.openshift.io/cluster-api-machine-role: master}
  annotations: {host.metal3.io/external-remediation: "", metal3.io/BareMetalHost: ns/h}
  ownerReferences:
  - {apiVersion: v1, kind: Other, name: o, uid: ou}
  - {apiVersion: v1, kind: MachineSet, name: ms, uid: mu, controller: true}
spec: {providerID: "baremetalhost:///ns/h/u", unknownToUs: {a: 1}}
status:
  phase: Running
  lastUpdated: "2026-01-02T03:04:05Z"
  nodeRef: {kind: Node, name: n-1, uid: nu}
`)
	require.Empty(t, s.Errors)
	assert.Equal(t, []policy.Machine{{
		APIVersion: policy.OpenShiftMachineAPI,
		Namespace:  "ns", Name: "m-1", UID: "u-1", Deleting: true,
		Labels:      map[string]string{"machine.openshift.io/cluster-api-machine-role": "master"},
		Annotations: map[string]string{"host.metal3.io/external-remediation": "", "metal3.io/BareMetalHost": "ns/h"},
		Phase:       "Running", NodeName: "n-1", NodeUID: "nu", LastUpdated: stamp, ProviderID: "baremetalhost:///ns/h/u",
		ControllerOwner: policy.Owner{Kind: "MachineSet", Name: "ms", UID: "mu"},
		ControlPlane:    true, ExternalRemediationRequested: true,
	}}, s.Machines)
}

// openshift/enhancements#1465: when OpenShift's controllers leave a Machine alone.
func TestMachineOfAnotherAuthority(t *testing.T) {
	paused := func(status string) []any {
		return []any{map[string]any{"type": "Synchronized", "status": "True"}, map[string]any{"type": "Paused", "status": status}}
	}
	for name, c := range map[string]struct {
		status        map[string]any
		suspended     string
		authoritative bool
	}{
		"a cluster without the Cluster API": {map[string]any{}, "", false},
		"OpenShift's API":                   {map[string]any{"authoritativeAPI": "MachineAPI", "conditions": paused("False")}, "", true},
		"the Cluster API":                   {map[string]any{"authoritativeAPI": "ClusterAPI", "conditions": paused("True")}, "the Cluster API is authoritative", false},
		"on the way":                        {map[string]any{"authoritativeAPI": "Migrating"}, "moves to or from the Cluster API", false},
		"on the way back":                   {map[string]any{"authoritativeAPI": "MachineAPI", "conditions": paused("True")}, "its condition Paused is True", false},
		"conditions that are none":          {map[string]any{"authoritativeAPI": "MachineAPI", "conditions": "x"}, "", true},
	} {
		c.status["nodeRef"] = map[string]any{"name": "n", "uid": "u"}
		m, err := manifest.Machine(map[string]any{"apiVersion": policy.OpenShiftMachineAPI, "kind": "Machine", "status": c.status,
			"metadata": map[string]any{"namespace": "ns", "name": "m", "annotations": map[string]any{manifest.RemediationAnnotation: ""}}})
		require.NoError(t, err, name)
		assert.Contains(t, m.Suspended, c.suspended, name)
		assert.Equal(t, c.suspended == "", m.Suspended == "", name)
		assert.Equal(t, c.authoritative, m.Authoritative, name)
		assert.Equal(t, c.suspended == "", m.ExternalRemediationRequested, "%s: nobody is asked", name)
		assert.Equal(t, "u", m.NodeUID, name)
	}
}

// openshift/enhancements#1465 plans the field for MachineHealthChecks, too; openshift/api has it on Machines and
// MachineSets alone, in every feature set. When this fails, a check whose status names the other API is a copy, and must
// not be evaluated.
func TestMachineHealthChecksHaveNoAuthority(t *testing.T) {
	for kind, has := range map[string]bool{"machines": true, "machinesets": true, "machinehealthchecks": false} {
		crd := must.Do(crds.Files.ReadFile("openshift/machine.openshift.io_" + kind + ".yaml"))(t)
		assert.Equal(t, has, bytes.Contains(crd, []byte("authoritativeAPI:")), kind)
	}
}

func TestInfrastructureMachine(t *testing.T) {
	for version, ref := range map[string]map[string]any{
		policy.ClusterAPIV1Beta1: {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine", "name": "m3m", "namespace": "elsewhere"},
		policy.ClusterAPIV1Beta2: {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine", "name": "m3m"},
	} {
		m := must.Do(manifest.Machine(map[string]any{"apiVersion": version, "kind": "Machine", "metadata": map[string]any{"namespace": "ns", "name": "m"},
			"spec": map[string]any{"infrastructureRef": ref}, "status": map[string]any{"nodeRef": map[string]any{"name": "n", "uid": "u"}}}))(t)
		assert.Equal(t, policy.InfrastructureRef{Kind: "Metal3Machine.infrastructure.cluster.x-k8s.io", Name: "m3m"}, m.Infrastructure)
		assert.Equal(t, "ns/m3m", m.Consumer())
		assert.Equal(t, "u", m.NodeUID)
	}
}

func TestNodeAndLease(t *testing.T) {
	s := snapshot(t, `
apiVersion: v1
kind: Node
metadata:
  name: n-1
  uid: u
  resourceVersion: "7"
  labels: {node-role.kubernetes.io/master: ""}
  annotations: {a: b}
  creationTimestamp: null
spec:
  providerID: p
  unschedulable: true
  taints: [{key: k, value: v, effect: NoSchedule, timeAdded: "2026-01-02T03:04:05Z"}]
status:
  addresses: [{type: InternalIP, address: 192.0.2.1}, {type: Hostname, address: n-1}]
  conditions:
  - {type: Ready, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z", lastHeartbeatTime: "2026-01-02T03:04:05Z"}
  - {type: DiskPressure, status: "False", lastTransitionTime: null}
  nodeInfo: {systemUUID: s, bootID: b, machineID: m}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: kube-node-lease, name: n-1, resourceVersion: "9"}
spec: {renewTime: "2026-01-02T03:04:05.000000Z", leaseDurationSeconds: 40}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: kube-system, name: n-2}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: medik8s-leases, name: node-n-1}
spec: {holderIdentity: NodeHealthCheck-c, renewTime: "2026-01-02T03:04:05.000000Z", leaseDurationSeconds: 600}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: medik8s-leases, name: leader}
`)
	require.Empty(t, s.Errors)
	assert.Equal(t, map[string]*policy.Node{"n-1": {
		Name: "n-1", UID: "u", ControlPlane: true,
		Labels: policy.LabelsOf(map[string]string{"node-role.kubernetes.io/master": ""}), Annotations: map[string]string{"a": "b"},
		ProviderID: "p", SystemUUID: "s", BootID: "b", MachineID: "m",
		Addresses:  []string{"192.0.2.1", "n-1"},
		Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "True", LastTransition: stamp}, {Type: "DiskPressure", Status: "False"}}),
	}}, s.Nodes)
	assert.Equal(t, map[string]policy.Lease{"n-1": {RenewTime: stamp, Duration: 40 * time.Second}}, s.Leases)
	assert.Equal(t, map[string]policy.NodeLock{"n-1": {Holder: "NodeHealthCheck-c", RenewTime: stamp, Duration: 10 * time.Minute}}, s.NodeLocks)
}

func TestBareMetalHost(t *testing.T) {
	s := snapshot(t, `
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata:
  namespace: ns
  name: h
  uid: u
  annotations:
    reboot.metal3.io/fenced: '{"mode":"hard"}'
    baremetalhost.metal3.io/detached: ""
    baremetalhost.metal3.io/status: long
spec:
  online: true
  externallyProvisioned: true
  disablePowerOff: true
  bmc: {address: "ipmi://192.0.2.1", credentialsName: c, disableCertificateVerification: true}
  consumerRef: {apiVersion: machine.openshift.io/v1beta1, kind: Machine, namespace: ns, name: m-1}
  bootMACAddress: 00:1b:21:00:00:00
status:
  provisioning: {state: externally provisioned}
  hardware:
    systemVendor: {manufacturer: Dell Inc., serialNumber: ABC1234}
    nics: [{name: eno1, mac: 00:1b:21:00:00:01, ip: fe80::1}, {name: eno1, mac: 00:1b:21:00:00:01, ip: 192.0.2.7}, {mac: 00:1b:21:00:00:02}, {mac: 7}]
`)
	require.Empty(t, s.Errors)
	assert.Equal(t, []policy.Host{{
		Namespace: "ns", Name: "h", UID: "u", Address: "ipmi://192.0.2.1", CredentialsName: "c",
		DisableCertificateVerification: true, DisablePowerOff: true, Online: true, ExternallyProvisioned: true,
		ConsumerRef: "ns/m-1", ConsumerKind: "Machine.machine.openshift.io", State: "externally provisioned",
		Annotations: map[string]string{"reboot.metal3.io/fenced": `{"mode":"hard"}`, "baremetalhost.metal3.io/detached": ""},
		Serial:      "ABC1234", MACs: []string{"00:1b:21:00:00:00", "00:1b:21:00:00:01", "00:1b:21:00:00:02"},
		NICs: []string{"00:1b:21:00:00:01", "00:1b:21:00:00:02"},
	}}, s.Hosts)
}

func TestRequests(t *testing.T) {
	s := snapshot(t, `
{apiVersion: fenced.io/v1alpha1, kind: FencedRemediation, metadata: {namespace: ns, name: m-1}}
---
apiVersion: fenced.io/v1alpha1
kind: FencedRemediation
metadata: {namespace: ns, name: m-0, uid: u, finalizers: [other, fenced.io/power], deletionTimestamp: "2026-01-02T03:04:05Z"}
spec: {retryLimit: 0, timeoutSeconds: 600, remediateReadyNodes: true}
status: {phase: Running}
---
{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: Metal3Remediation, metadata: {namespace: ns, name: m-2}}
---
apiVersion: self-node-remediation.medik8s.io/v1alpha1
kind: SelfNodeRemediation
metadata: {namespace: ns, name: n-1, annotations: {fenced.io/check: FencePolicy.fenced.io p, fenced.io/made-by: store}}
status: {phase: Fencing}
`)
	assert.Equal(t, []policy.Request{
		{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediation", Namespace: "ns", Name: "m-1", Power: &policy.PowerRequest{}},
		{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediation", Namespace: "ns", Name: "m-0", UID: "u", Deleting: true, Begun: true, Finalizer: true,
			Power: &policy.PowerRequest{Attempts: 1, Timeout: 10 * time.Minute, ReadyNodes: true, HasFinalizer: true, Phase: "Running"}},
		{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Remediation", Namespace: "ns", Name: "m-2"},
		{APIVersion: "self-node-remediation.medik8s.io/v1alpha1", Kind: "SelfNodeRemediation", Namespace: "ns", Name: "n-1",
			Check: "FencePolicy.fenced.io p", MadeBy: "store", Begun: true},
	}, s.Requests)
}

// Every remediator of medik8s stops for the annotation, whatever its value: a person may have written it. // I22
func TestRequestIsGivenUpWhateverTheTime(t *testing.T) {
	for value, want := range map[string]time.Time{"2026-01-02T03:04:05Z": stamp, "": time.Unix(0, 0), "now": time.Unix(0, 0), "0001-01-01T00:00:00Z": time.Unix(0, 0)} {
		q := must.Do(manifest.Request(map[string]any{"apiVersion": "fenced.io/v1alpha1", "kind": policy.FencedRemediationKind,
			"metadata": map[string]any{"namespace": "ns", "name": "m", "annotations": map[string]any{manifest.RequestTimedOut: value}}}))(t)
		assert.True(t, want.Equal(q.TimedOut), "%q: %s", value, q.TimedOut)
	}
	q := must.Do(manifest.Request(map[string]any{"apiVersion": "fenced.io/v1alpha1", "kind": policy.FencedRemediationKind,
		"metadata": map[string]any{"namespace": "ns", "name": "m", "annotations": map[string]any{manifest.RequestHealthyDelay: "0001-01-01T00:00:00Z"}}}))(t)
	assert.False(t, q.HealthyDelaySince.IsZero(), "no other time is ever written over it")
}

// The finalizers of Kubernetes' own garbage collection are no sign of a remediator. // I22
func TestFinalizersOfARemediator(t *testing.T) {
	for _, c := range []struct {
		finalizers []any
		want       bool
	}{
		{nil, false},
		{[]any{"foregroundDeletion"}, false},
		{[]any{"orphan"}, false},
		{[]any{"foregroundDeletion", "example.com/reboot"}, true},
		{[]any{manifest.RequestFinalizer}, true},
	} {
		q := must.Do(manifest.Request(map[string]any{"apiVersion": "example.com/v1", "kind": "Reboot",
			"metadata": map[string]any{"namespace": "ns", "name": "m", "finalizers": c.finalizers}}))(t)
		assert.Equal(t, c.want, q.Finalizer, c.finalizers)
		assert.Equal(t, c.want, q.Begun, c.finalizers)
	}
}

// The API server makes a FencedRemediation with a status that says that nobody has read it. Of another kind that is a
// status as any other: its remediator may have written it. // I22
func TestStatusOfANewRequest(t *testing.T) {
	begun := func(apiVersion, kind string, status map[string]any) bool {
		q := must.Do(manifest.Request(map[string]any{"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"namespace": "ns", "name": "m", "generation": int64(7)}, "status": status}))(t)
		assert.EqualValues(t, 7, q.Generation)
		return q.Begun
	}
	unread := map[string]any{"observedGeneration": int64(-1)}
	assert.False(t, begun("fenced.io/v1alpha1", "FencedRemediation", unread))
	assert.True(t, begun("example.com/v1", "Reboot", unread))
	for _, status := range []map[string]any{{"observedGeneration": int64(1)}, {"observedGeneration": int64(-1), "phase": "Pending"}, {"phase": "Pending"}} {
		assert.True(t, begun("fenced.io/v1alpha1", "FencedRemediation", status), status)
	}
}

// TestMetal3RequestIsOwnWhereThatIsConfigured, and no other kind is.
func TestMetal3RequestIsOwnWhereThatIsConfigured(t *testing.T) {
	fields := func(apiVersion string, limit any) map[string]any {
		return map[string]any{"apiVersion": apiVersion, "kind": "Metal3Remediation",
			"metadata": map[string]any{"namespace": "ns", "name": "m", "finalizers": []any{manifest.RequestFinalizer}},
			"spec":     map[string]any{"strategy": map[string]any{"retryLimit": limit}}}
	}
	const api = "infrastructure.cluster.x-k8s.io/v1beta1"
	q := must.Do(manifest.Request(fields(api, int64(3))))(t)
	assert.Nil(t, q.Power)
	q = must.Do(manifest.OwnRequest(fields(api, int64(3))))(t)
	assert.Equal(t, &policy.PowerRequest{Attempts: 4, HasFinalizer: true}, q.Power)
	q = must.Do(manifest.OwnRequest(fields(api, nil)))(t)
	assert.Equal(t, 2, q.Power.Attempts, "the default of 1 means two")
	q = must.Do(manifest.OwnRequest(fields("example.com/v1", int64(3))))(t)
	assert.Nil(t, q.Power)
	_, err := manifest.OwnRequest(fields(api, "many"))
	assert.ErrorContains(t, err, "retryLimit")
}

// TestPhaseOfAMetal3Request: what fenced has told it stands in an annotation, because the API takes no other phases than
// those of Metal3's controller. In two of them that controller does nothing more. // I4
func TestPhaseOfAMetal3Request(t *testing.T) {
	for _, c := range []struct {
		told, status string
		want         string
		answered     bool
	}{
		{"", "", "", false},
		{"Pending", "", "Pending", false},
		{"Running", "Running", "Running", false},
		{"Held", "Running", "Held", false},
		{"Succeeded", "Waiting", "Succeeded", true},
		{"Succeeded", "Running", "Succeeded", true},
		{"Failed", "Failed", "Failed", true},
		{"", "Running", "Running", false},
		{"", "Waiting", "Waiting", false},
		{"", "Deleting machine", "Failed", true},
		{"", "Failed", "Failed", true},
		{"", "Succeeded", "Succeeded", true}, // by an earlier fenced, where the API took it
	} {
		meta := map[string]any{"namespace": "ns", "name": "m"}
		if c.told != "" {
			meta["annotations"] = map[string]any{manifest.RequestPhase: c.told}
		}
		q := must.Do(manifest.OwnRequest(map[string]any{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "Metal3Remediation",
			"metadata": meta, "status": map[string]any{"phase": c.status}}))(t)
		assert.Equal(t, c.want, q.Power.Phase, c)
		assert.Equal(t, c.answered, q.Power.Answered(), c)
	}
}

// TestChecksStay: a check that cannot be decoded, even without a name, or that
// this version does not judge, is Invalid and not forgotten.
func TestChecksStay(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"spec is a text":      {"{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {namespace: ns, name: c}, spec: x}", `spec: "x" is not an object`},
		"no name":             {"{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {namespace: ns}}", "metadata.name: is missing"},
		"metadata is a list":  {"{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: [x]}", "metadata: a list is not an object"},
		"bad annotation":      {"{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {namespace: ns, name: c, annotations: {cluster.x-k8s.io/paused: true}}}", "metadata.annotations: the value of cluster.x-k8s.io/paused, true, is not a text"},
		"other version":       {"{apiVersion: machine.openshift.io/v2, kind: MachineHealthCheck, metadata: {namespace: ns, name: c}}", "does not evaluate machine.openshift.io/v2"},
		"Cluster API":         {"{apiVersion: cluster.x-k8s.io/v1alpha4, kind: MachineHealthCheck, metadata: {namespace: ns, name: c}}", "does not evaluate cluster.x-k8s.io/v1alpha4"},
		"a later one of ours": {"{apiVersion: fenced.io/v1, kind: FencePolicy, metadata: {name: c}}", "does not evaluate fenced.io/v1 "},
		"condition is text":   {"{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {namespace: ns, name: c}, spec: {unhealthyConditions: [Ready]}}", `spec.unhealthyConditions[0]: "Ready" is not an object`},
		"several mistakes":    {`{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {namespace: ns, name: c}, spec: {nodeStartupTimeout: -5m, selector: {matchExpressions: [{key: a, operator: In, values: [1]}]}}}`, `spec.selector.matchExpressions[0].values[0]: 1 is not a text`},
	} {
		t.Run(name, func(t *testing.T) {
			r := policy.Decide(snapshot(t, c.text), stamp)
			require.Len(t, r.Checks, 1)
			assert.Equal(t, policy.StateInvalid, r.Checks[0].State)
			assert.Contains(t, r.Checks[0].Message, c.want)
			assert.False(t, r.Checks[0].Allowed)
			assert.Empty(t, r.Errors)
		})
	}
	two := snapshot(t, `
{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {namespace: ns, name: c}, spec: {maxUnhealthy: 1}}
---
{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {namespace: ns, name: c}, spec: {maxUnhealthy: 2}}
`)
	require.Len(t, two.Checks, 1)
	assert.Equal(t, "is in in.yaml:2 and, with other contents, in in.yaml:4", two.Checks[0].Invalid)
}

// TestNoNamespaceIsDefault: an object from a book names no namespace, and kubectl
// would create it in "default". A policy file must say where it is meant for.
func TestNoNamespaceIsDefault(t *testing.T) {
	const text = `
{apiVersion: machine.openshift.io/v1beta1, kind: MachineHealthCheck, metadata: {name: c}, spec: {selector: {}}}
---
{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: m}}
---
{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {namespace: "", name: k}}
`
	s := snapshot(t, text)
	require.Empty(t, s.Errors)
	assert.Equal(t, "default/c", s.Checks[0].Key())
	state, why := s.Checks[0].State()
	assert.Equal(t, policy.StateActive, state, why)
	assert.Equal(t, "default/m", s.Machines[0].Key())
	assert.Equal(t, "default", s.Clusters[0].Namespace)
	_, err := manifest.DecodePolicies("p.yaml", []byte(text[:strings.Index(text, "---")]))
	assert.ErrorContains(t, err, "metadata.namespace: is missing")
}

// TestTemplateOfFencedIsNoCheck: templates are assumed to exist, their kinds are
// not read.
func TestTemplateOfFencedIsNoCheck(t *testing.T) {
	s := snapshot(t, "{apiVersion: fenced.io/v1alpha1, kind: FencedRemediationTemplate, metadata: {namespace: ns, name: t}}")
	assert.Empty(t, s.Checks)
	assert.Empty(t, s.Errors)
}
