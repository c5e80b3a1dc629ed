package manifest

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/fenced/fenced/internal/policy"
)

// Keys of the Cluster API.
const (
	clusterNameLabel    = "cluster.x-k8s.io/cluster-name"
	skipAnnotation      = "cluster.x-k8s.io/skip-remediation"
	remediateAnnotation = "cluster.x-k8s.io/remediate-machine"

	controlPlaneInitialized = "ControlPlaneInitialized"
	infrastructureReady     = "InfrastructureReady"
	ownerRemediated         = "OwnerRemediated"
)

// isClusterAPI reports whether this version of fenced reads objects of that
// apiVersion.
func isClusterAPI(apiVersion string) bool {
	return apiVersion == policy.ClusterAPIV1Beta1 || apiVersion == policy.ClusterAPIV1Beta2
}

// Cluster decodes a cluster.x-k8s.io Cluster of v1beta1 or v1beta2. A condition
// takes precedence over the field with the same meaning.
func Cluster(fields map[string]any) (policy.Cluster, error) {
	o := read(fields)
	status := o.child("status")
	c := policy.Cluster{Paused: o.child("spec").flag("paused")}
	c.Namespace, c.Name, _ = identify(o.child("metadata"), true)
	old := o.text("apiVersion") == policy.ClusterAPIV1Beta1
	seen := clusterConditions(status, old)
	initialization := status.child("initialization")
	initialized, provisioned := initialization.flag("controlPlaneInitialized"), initialization.flag("infrastructureProvisioned")
	if old {
		initialized, provisioned = status.flag("controlPlaneReady"), status.flag("infrastructureReady")
	}
	c.ControlPlaneInitialized, c.ControlPlaneSince = seen.holds(controlPlaneInitialized, initialized)
	c.InfrastructureReady, c.InfrastructureReadySince = seen.holds(infrastructureReady, provisioned)
	return c, o.err()
}

// clusterMachine decodes a cluster.x-k8s.io Machine of v1beta1 or v1beta2.
func clusterMachine(o object) (policy.Machine, error) {
	status := o.child("status")
	m := machineOf(o, status)
	old := m.APIVersion == policy.ClusterAPIV1Beta1
	seen := clusterConditions(status, old)
	node, infrastructure := status.child("nodeRef"), o.child("spec").child("infrastructureRef")
	m.NodeName, m.NodeUID = node.text("name"), node.text("uid") // a reference without a name counts as none
	m.Infrastructure.Name = infrastructure.text("name")
	m.Infrastructure.Kind = kindAndGroup(infrastructure.text("kind"), cmp.Or(infrastructure.text("apiVersion"), infrastructure.text("apiGroup")+"/"))
	m.Conditions, m.OwnerRemediated, m.Failure = seen.current, seen.status(ownerRemediated), terminalFailure(status, old)
	m.ClusterName = m.Labels[clusterNameLabel]
	_, m.InfrastructureReadySince = seen.holds(infrastructureReady, false)
	_, m.Paused = m.Annotations[pausedAnnotation]
	_, m.SkipRemediation = m.Annotations[skipAnnotation]
	_, m.RemediateRequested = m.Annotations[remediateAnnotation]
	return m, o.err()
}

// terminalFailure reads failureReason and failureMessage, which v1beta2 keeps
// only for v1beta1.
func terminalFailure(status object, old bool) string {
	if !old {
		status = status.child("deprecated").child("v1beta1")
	}
	why, message := status.start("failureReason", maxFailure), status.start("failureMessage", maxFailure)
	if why != "" && message != "" {
		why += ": "
	}
	return why + message
}

// maxFailure is how much of each text about a failure is kept, in bytes. Its author may write any
// length.
const maxFailure = 300

// conditionLists are the conditions of a Cluster API object. Owners and checks
// use the list that v1beta2 introduced; an older core provider writes only the
// old list.
type conditionLists struct {
	current, old []policy.Condition
}

func clusterConditions(status object, old bool) conditionLists {
	if old {
		return conditionLists{current: conditions(status.child("v1beta2")), old: conditions(status)}
	}
	return conditionLists{current: conditions(status)}
}

// find returns a condition of the current list, or else of the old one.
func (l conditionLists) find(kind string) (policy.Condition, bool) {
	for _, list := range [][]policy.Condition{l.current, l.old} {
		for _, c := range list {
			if c.Type == kind {
				return c, true
			}
		}
	}
	return policy.Condition{}, false
}

// status is the condition's status, or empty if it is absent.
func (l conditionLists) status(kind string) string {
	c, _ := l.find(kind)
	return c.Status
}

// holds returns whether a condition is True, and since when; fallback if it is
// absent.
func (l conditionLists) holds(kind string, fallback bool) (bool, time.Time) {
	c, ok := l.find(kind)
	switch {
	case !ok:
		return fallback, time.Time{}
	case c.Status != "True":
		return false, time.Time{}
	}
	return true, c.LastTransition
}

// clusterStartupTimeout is the default of the Cluster API.
const clusterStartupTimeout = 10 * time.Minute

// Fields of the check's spec that only one version has. An API server drops a
// field of another version, and so a limit could be lost.
var (
	fieldsV1Beta1 = []string{"unhealthyConditions", "unhealthyMachineConditions", "nodeStartupTimeout", "maxUnhealthy", "unhealthyRange", "remediationTemplate"}
	fieldsV1Beta2 = []string{"checks", "remediation"}
)

// reservedConditions are Machine conditions that result from a check or from its
// remediation. A check on them would depend on itself.
var reservedConditions = []string{"Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated"}

// clusterHealthCheck decodes a cluster.x-k8s.io MachineHealthCheck of v1beta1 or
// v1beta2. It always returns a check; an error makes it Invalid. It rejects what
// the admission webhook of the Cluster API rejects, except for what a single
// object cannot show and for the minimum start-up timeout of 30 s.
func clusterHealthCheck(o object) policy.Check {
	c := checkIdentity(o)
	spec := o.child("spec")
	c.ClusterName = spec.text("clusterName")
	c.Selector = clusterSelector(spec, c.ClusterName)
	readPause(&c)
	c.Strategy, c.StartupTimeout = policy.MarkOwners, clusterStartupTimeout
	if c.APIVersion == policy.ClusterAPIV1Beta1 {
		readV1Beta1(&c, spec)
	} else {
		readV1Beta2(&c, spec)
	}
	c.Invalid = invalid(o)
	return c
}

func readV1Beta1(c *policy.Check, spec object) {
	spec.failUnsupported(fieldsV1Beta2, policy.ClusterAPIV1Beta2)
	c.Conditions = unhealthyConditions(spec, "unhealthyConditions", "timeout", object.wholeSeconds)
	c.MachineConditions = machineUnhealthy(spec, "timeout", object.wholeSeconds)
	if spec.has("nodeStartupTimeout") {
		c.StartupTimeout = spec.wholeSeconds("nodeStartupTimeout")
	}
	c.MaxUnhealthy = intOrText(spec, "maxUnhealthy")
	c.UnhealthyRange = unhealthyRange(spec, "unhealthyRange")
	clusterTemplate(c, spec, "remediationTemplate")
}

func readV1Beta2(c *policy.Check, spec object) {
	spec.failUnsupported(fieldsV1Beta1, policy.ClusterAPIV1Beta1)
	checks, remediation := spec.child("checks"), spec.child("remediation")
	c.Conditions = unhealthyConditions(checks, "unhealthyNodeConditions", timeoutSeconds, object.seconds)
	c.MachineConditions = machineUnhealthy(checks, timeoutSeconds, object.seconds)
	if checks.has("nodeStartupTimeoutSeconds") {
		c.StartupTimeout = checks.seconds("nodeStartupTimeoutSeconds")
	}
	trigger := remediation.child("triggerIf")
	c.MaxUnhealthy = intOrText(trigger, "unhealthyLessThanOrEqualTo")
	c.UnhealthyRange = unhealthyRange(trigger, "unhealthyInRange")
	clusterTemplate(c, remediation, "templateRef")
}

// failUnsupported reports fields that belong to another version.
func (o object) failUnsupported(names []string, version string) {
	for _, name := range names {
		if o.has(name) {
			o.fail(o.at(name), "belongs to %s", version)
		}
	}
}

// clusterSelector is the check's selector within its cluster; nil if it could not
// be read. Unlike OpenShift's, an empty one is an error.
func clusterSelector(spec object, clusterName string) labels.Selector {
	o := spec.child("selector")
	s := selector(o)
	if s != nil && s.Empty() {
		o.fail(o.path, "is missing or empty")
	}
	own, err := labels.NewRequirement(clusterNameLabel, selection.Equals, []string{clusterName})
	switch {
	case !spec.has("clusterName"):
		spec.fail(spec.at("clusterName"), "is missing")
		return nil
	case err != nil || clusterName == "":
		spec.fail(spec.at("clusterName"), "%q is not the name of a cluster", clusterName)
		return nil
	case s == nil:
		return nil
	}
	if other, ok := o.textMap("matchLabels")[clusterNameLabel]; ok && other != clusterName {
		o.fail(o.path, "the label %s is %q, and spec.clusterName is %q", clusterNameLabel, other, clusterName)
	}
	return s.Add(*own)
}

func machineUnhealthy(o object, timeout string, read func(object, string) time.Duration) []policy.UnhealthyCondition {
	const list = "unhealthyMachineConditions"
	found := unhealthyConditions(o, list, timeout, read)
	for _, u := range found {
		if slices.Contains(reservedConditions, u.Type) {
			o.fail(o.at(list), "%q is not for checks", u.Type)
		}
	}
	return found
}

// timeoutSeconds is the field with the timeout of an unhealthy condition in v1beta2.
const timeoutSeconds = "timeoutSeconds"

// maxSeconds is the longest timeout of the Cluster API.
const maxSeconds = math.MaxInt32

// wholeSeconds reads a duration and converts it to seconds as the Cluster API
// does, rounding down: 500ms becomes 0.
func (o object) wholeSeconds(name string) time.Duration {
	return min(o.duration(name).Truncate(time.Second), maxSeconds*time.Second)
}

// seconds reads a whole number of seconds.
func (o object) seconds(name string) time.Duration {
	n, _ := get[int64](o, name, "a whole number")
	switch {
	case n < 0:
		o.fail(o.at(name), "%d is negative", n)
		return 0
	case n > maxSeconds:
		o.fail(o.at(name), "%d is too large", n)
		return 0
	}
	return time.Duration(n) * time.Second
}

// unhealthyRange reads a range; policy validates it further.
func unhealthyRange(o object, name string) string {
	text, ok := get[string](o, name, "a text")
	if ok && text == "" {
		o.fail(o.at(name), "%q is not a range like [1-3]", text)
	}
	return text
}

// clusterTemplate reads the reference to a template, which is always in the
// namespace of the check.
func clusterTemplate(c *policy.Check, o object, name string) {
	if !o.has(name) {
		return
	}
	ref := o.child(name)
	c.Strategy = policy.CreateRequests
	c.Template = template(ref)
	c.Template.Namespace = c.Namespace
	switch {
	case c.Template.APIVersion == "" || c.Template.Kind == "" || c.Template.Name == "":
		c.Disabled = ref.path + " names no template"
	case requestKind(c.Template.Kind) == "":
		c.Disabled = ref.path + ": the kind " + c.Template.Kind + " does not end in Template"
	}
}

// requestKind is the kind of requests that a template makes; empty if it is no
// template.
func requestKind(kind string) string {
	if of, ok := strings.CutSuffix(kind, "Template"); ok {
		return of
	}
	return ""
}

// clusterCheckV1Beta1 and clusterCheckV1Beta2 are the keys of a Cluster API MachineHealthCheck in a file; see checkSchema.
var clusterCheckV1Beta1 = schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"clusterName":                nil,
		"selector":                   selectorSchema,
		"unhealthyConditions":        {"type": nil, "status": nil, "timeout": nil},
		"unhealthyMachineConditions": {"type": nil, "status": nil, "timeout": nil},
		"maxUnhealthy":               nil,
		"unhealthyRange":             nil,
		"nodeStartupTimeout":         nil,
		"remediationTemplate":        referenceSchema,
	},
}

var clusterCheckV1Beta2 = schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"clusterName": nil,
		"selector":    selectorSchema,
		"checks": {
			"unhealthyNodeConditions":    {"type": nil, "status": nil, "timeoutSeconds": nil},
			"unhealthyMachineConditions": {"type": nil, "status": nil, "timeoutSeconds": nil},
			"nodeStartupTimeoutSeconds":  nil,
		},
		"remediation": {
			"triggerIf":   {"unhealthyLessThanOrEqualTo": nil, "unhealthyInRange": nil},
			"templateRef": {"apiVersion": nil, "kind": nil, "name": nil},
		},
	},
}
