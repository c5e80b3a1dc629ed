package manifest

import (
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// Annotations and labels of OpenShift and Metal3.
const (
	// RemediationAnnotation on a Machine requests a power cycle of its host.
	RemediationAnnotation = "host.metal3.io/external-remediation"
	strategyAnnotation    = "machine.openshift.io/remediation-strategy"
	strategyPowerCycle    = "external-baremetal"
	pausedAnnotation      = "cluster.x-k8s.io/paused"
	// evaluatorAnnotation on a paused MachineHealthCheck names the instance of fenced
	// that evaluates it.
	evaluatorAnnotation = "fenced.io/evaluator"
	clusterAnnotation   = "fenced.io/cluster"
)

// defaultStartupTimeout is the default of OpenShift.
const defaultStartupTimeout = "10m"

// Machine decodes a Machine of either API family.
func Machine(fields map[string]any) (policy.Machine, error) {
	o := read(fields)
	if isClusterAPI(o.text("apiVersion")) {
		return clusterMachine(o)
	}
	status := o.child("status")
	m := machineOf(o, status)
	m.LastUpdated = status.time("lastUpdated")
	if status.has("nodeRef") {
		ref := status.child("nodeRef")
		if m.NodeName, m.NodeUID = ref.text("name"), ref.text("uid"); m.NodeName == "" {
			ref.fail(ref.at("name"), "is missing")
		}
	}
	m.Suspended, m.Authoritative = authority(read(status.fields)) // it belongs to a controller: what cannot be read is unknown
	_, requested := m.Annotations[RemediationAnnotation]
	m.ExternalRemediationRequested = requested && m.Suspended == ""
	return m, o.err()
}

// authority returns why OpenShift's controllers leave a Machine alone, and whether the status says
// that their API is authoritative. While a Machine moves to or from the Cluster API, both do.
func authority(status object) (suspended string, authoritative bool) {
	api := status.text("authoritativeAPI")
	switch api {
	case "ClusterAPI":
		return "the Cluster API is authoritative for the Machine (status.authoritativeAPI)", false
	case "Migrating":
		return "the Machine moves to or from the Cluster API (status.authoritativeAPI is Migrating)", false
	}
	for _, c := range status.first("conditions") {
		if c.text("type") == "Paused" && c.text("status") == "True" {
			return "the Machine is paused (its condition Paused is True)", false
		}
	}
	return "", api == "MachineAPI"
}

// machineOf decodes what a Machine has in both API families. status is that of o: read once, so that
// what is wrong with it is reported once.
func machineOf(o, status object) policy.Machine {
	meta := o.child("metadata")
	m := policy.Machine{
		APIVersion:      o.text("apiVersion"),
		Created:         meta.time("creationTimestamp"),
		Labels:          meta.labels("labels"),
		Annotations:     meta.annotations(RemediationAnnotation, pausedAnnotation, skipAnnotation, remediateAnnotation, policy.HostAnnotation),
		Phase:           status.text("phase"),
		Deleting:        !meta.time("deletionTimestamp").IsZero(),
		ProviderID:      o.child("spec").text("providerID"),
		ControllerOwner: controllerOwner(meta),
	}
	m.Namespace, m.Name, m.UID = identify(meta, true)
	m.ControlPlane = policy.ControlPlaneMachine(m.Labels, m.ControllerOwner)
	return m
}

// MachineHealthCheck decodes a MachineHealthCheck of either API family. It always
// returns a check; an error makes it Invalid.
func MachineHealthCheck(fields map[string]any) policy.Check {
	o := read(fields)
	if isClusterAPI(o.text("apiVersion")) {
		return clusterHealthCheck(o)
	}
	c := checkIdentity(o)
	spec := o.child("spec")
	c.Selector = selector(spec.child("selector"))
	c.Conditions = unhealthyConditions(spec, "unhealthyConditions", "timeout", object.duration)
	if !spec.has("nodeStartupTimeout") {
		spec = spec.with("nodeStartupTimeout", defaultStartupTimeout)
	}
	c.StartupTimeout = spec.duration("nodeStartupTimeout")
	c.MaxUnhealthy = intOrText(spec, "maxUnhealthy")
	c.Strategy = policy.DeleteMachines
	if c.Annotations[strategyAnnotation] == strategyPowerCycle {
		c.Strategy = policy.PowerCycleHosts
	}
	if spec.has("remediationTemplate") {
		c.Strategy = policy.CreateRequests
		c.Template = template(spec.child("remediationTemplate"))
		if c.Template.Kind == "" || c.Template.Name == "" {
			c.Disabled = "spec.remediationTemplate names no template"
		}
	}
	readPause(&c)
	c.Invalid = invalid(o)
	return c
}

// checkSchema is the schema of an OpenShift MachineHealthCheck. What the API
// server writes (metadata, status) is not checked, so that a check can be saved
// from a cluster unchanged.
var checkSchema = schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"selector":            selectorSchema,
		"unhealthyConditions": {"type": nil, "status": nil, "timeout": nil},
		"maxUnhealthy":        nil,
		"nodeStartupTimeout":  nil,
		"remediationTemplate": referenceSchema,
	},
}

// selectorSchema and referenceSchema are parts of the checks of several API families.
var (
	selectorSchema  = schema{"matchLabels": nil, "matchExpressions": {"key": nil, "operator": nil, "values": nil}}
	referenceSchema = schema{
		"apiVersion": nil, "kind": nil, "namespace": nil, "name": nil,
		"uid": nil, "resourceVersion": nil, "fieldPath": nil,
	}
)

// readPause reads whether a MachineHealthCheck is paused for its own controller, and
// to whom it is handed over. The annotation pauses whatever its value is, even
// "false".
func readPause(c *policy.Check) {
	_, c.Paused = c.Annotations[pausedAnnotation]
	c.Evaluator = c.Annotations[evaluatorAnnotation]
}

// decodeUnsupported decodes only the identity of a check that this version of
// fenced does not evaluate, so that it is reported.
func decodeUnsupported(fields map[string]any) policy.Check {
	o := read(fields)
	c := checkIdentity(o)
	c.Invalid = invalid(o)
	return c
}

func checkIdentity(o object) policy.Check {
	meta := o.child("metadata")
	c := policy.Check{
		Kind: o.text("kind"), APIVersion: o.text("apiVersion"),
		Annotations: meta.annotations(pausedAnnotation, evaluatorAnnotation, clusterAnnotation, strategyAnnotation), Source: "cluster",
	}

	c.Namespace, c.Name, c.UID = identify(meta, c.Kind == policy.MachineHealthCheckKind)
	if cluster := c.Annotations[clusterAnnotation]; cluster != "" {
		c.Clusters = []string{cluster}
	}
	return c
}

// invalid returns why the check cannot be evaluated, on one line.
func invalid(o object) string {
	var texts []string
	for _, err := range o.firstErrors() {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// unhealthyConditions reads a list of unhealthy conditions; timeout is the name of the field with their timeout, and
// read reads it. A missing timeout must not mean "at once". Only one in seconds may be absent and then is 0, as in
// the Cluster API.
func unhealthyConditions(o object, list, timeout string, read func(object, string) time.Duration) []policy.UnhealthyCondition {
	var found []policy.UnhealthyCondition
	for _, u := range o.shortList(list) {
		u.mustHave("type", "status")
		if timeout != timeoutSeconds {
			u.mustHave(timeout)
		}
		found = append(found, policy.UnhealthyCondition{Type: u.text("type"), Status: u.text("status"), Timeout: read(u, timeout)})
	}
	return found
}
