package policy

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The kinds of checks, and the API versions that are judged.
const (
	MachineHealthCheckKind = "MachineHealthCheck"
	NodeHealthCheckKind    = "NodeHealthCheck"
	FencePolicyKind        = "FencePolicy"
	DisruptionBudgetKind   = "DisruptionBudget"
	FencedRemediationKind  = "FencedRemediation"

	OpenShiftMachineAPI = "machine.openshift.io/v1beta1"
	ClusterAPIV1Beta1   = "cluster.x-k8s.io/v1beta1"
	ClusterAPIV1Beta2   = "cluster.x-k8s.io/v1beta2"
	Medik8sAPI          = "remediation.medik8s.io/v1alpha1"
	FencedAPI           = "fenced.io/v1alpha1"
)

// apiFamily is whose rules a check follows.
type apiFamily int

const (
	unknownFamily apiFamily = iota
	openShift
	clusterAPI
	medik8s
	fenced
)

// apiFamilies says which rules belong to which kind of check.
var apiFamilies = map[[2]string]apiFamily{
	{OpenShiftMachineAPI, MachineHealthCheckKind}: openShift,
	{ClusterAPIV1Beta1, MachineHealthCheckKind}:   clusterAPI,
	{ClusterAPIV1Beta2, MachineHealthCheckKind}:   clusterAPI,
	{Medik8sAPI, NodeHealthCheckKind}:             medik8s,
	{FencedAPI, FencePolicyKind}:                  fenced,
}

// Strategy is how a check wants its unhealthy targets remedied.
type Strategy string

// The strategies.
const (
	// DeleteMachines is the OpenShift lineage's default: another Machine takes over.
	DeleteMachines Strategy = "DeleteMachine"
	// PowerCycleHosts is asked for by the external-baremetal annotation.
	PowerCycleHosts Strategy = "PowerCycle"
	// CreateRequests is asked for by a remediation template.
	CreateRequests Strategy = "CreateRequest"
	// MarkOwners is the Cluster API's without a template: the owner replaces it.
	MarkOwners Strategy = "MarkOwner"
	// CountOnly counts targets and never remedies them: pets.
	CountOnly Strategy = "None"
)

// Check is one health check as its author wrote it, with every text already
// turned into values. A check that cannot be evaluated says so in Invalid and
// keeps its identity, so that it never vanishes silently.
type Check struct {
	Kind, APIVersion     string
	Namespace, Name      string
	UID, ResourceVersion string
	Annotations          map[string]string

	// Selector picks Machines of the check's own namespace, or Nodes. Nil picks
	// none: it could not be read. A Cluster API check's has its cluster's label.
	Selector     labels.Selector
	SelectsNodes bool
	// ClusterName is the Cluster API's cluster.
	ClusterName string

	Conditions        []UnhealthyCondition
	MachineConditions []UnhealthyCondition
	// StartupTimeout is how long a Machine may be without a Node; 0 switches
	// the start-up check off.
	StartupTimeout time.Duration
	// MaxUnhealthy and MinHealthy are the limit as written; nil is the lineage's default.
	MaxUnhealthy, MinHealthy *intstr.IntOrString
	// UnhealthyRange is "[min-max]"; empty is none.
	UnhealthyRange string
	Strategy       Strategy
	Template       *Template
	// Escalation is the ordered list of templates that replaces Template.
	Escalation []Escalation
	Paused     bool
	// PauseRequests are medik8s' reasons to do nothing.
	PauseRequests []string
	// Evaluator is the annotation fenced.io/evaluator: the instance that judges a
	// paused Cluster API check.
	Evaluator string
	// HealthyDelay is how long a request outlives the recovery; negative waits for
	// a person's confirmation.
	HealthyDelay time.Duration
	// StormCooldown is how long nothing new begins after the limit was exceeded.
	StormCooldown time.Duration
	Storm         Storm
	// Tried is what was requested for each Node that is not healthy again, as the
	// check's own status has it.
	Tried map[string][]Attempt

	// Isolation, MaxAttempts and Deadlines override the configuration; zero does not.
	Isolation   string
	MaxAttempts int
	Deadlines   Deadlines
	// ZoneKey overrides guards.zoneKey.
	ZoneKey string
	Windows []Window
	// ShortenOnEvidence: a target whose BMC reads Off twice waits for no timeout.
	ShortenOnEvidence bool

	// Invalid says why the check cannot be evaluated: field and value. // I18
	Invalid string
	// Disabled says why the lineage itself would ignore the check.
	Disabled string

	// Clusters restricts a check that came from a file; empty is every cluster.
	Clusters []string
	// Source is where the check came from: "cluster", or file:line.
	Source string
}

// Storm is what is known of a check's last storm: more targets were unhealthy
// than its limit.
type Storm struct {
	Active bool
	// CooldownSince is when the storm was over; zero while none cools down.
	CooldownSince time.Time
}

// Deadlines are those that a policy sets for its own runs; 0 keeps the daemon's.
type Deadlines struct {
	PowerOff, PowerOn, NodeReady, Run time.Duration
}

// Escalation is one rung of a check that escalates.
type Escalation struct {
	Template Template
	Order    int
	Timeout  time.Duration
}

// Attempt is one request that a check has made, as its status remembers it.
type Attempt struct {
	APIVersion, Kind, TemplateName string
	Started                        time.Time
	// TimedOut is when the check gave up on it; zero when it did not.
	TimedOut time.Time
}

// Window is a span of time that comes again and again, in which the check is
// paused.
type Window struct {
	// Text is the schedule as written.
	Text string
	// Starts gives the first start after an instant.
	Starts   interface{ Next(time.Time) time.Time }
	Duration time.Duration
}

// DisruptionBudget allows at most so many of its Nodes to be unavailable,
// whichever checks cover them.
type DisruptionBudget struct {
	Name           string
	Selector       labels.Selector
	MaxUnavailable intstr.IntOrString
	Clusters       []string
	Invalid        string
	Source         string
}

// UnhealthyCondition makes a target unhealthy when its Node has had this
// condition with this status for longer than Timeout.
type UnhealthyCondition struct {
	Type, Status string
	Timeout      time.Duration
}

// Template points to the object from which remediation requests are made.
type Template struct {
	APIVersion, Kind, Namespace, Name string
}

// Own says whether fenced itself carries out the requests that are made from the
// template.
func (p *Template) Own() bool {
	return group(p.APIVersion) == group(FencedAPI) && p.Kind == FencedRemediationKind+"Template"
}

// Key names the check for people and for maps: "namespace/name".
func (c *Check) Key() string { return key(c.Namespace, c.Name) }

// ID tells checks of all kinds apart.
func (c *Check) ID() CheckID {
	return CheckID{c.Kind, c.APIVersion, c.Namespace, c.Name, c.Source}
}

// CheckID tells checks of all kinds and sources apart.
type CheckID struct {
	Kind, APIVersion, Namespace, Name, Source string
}

func (c *Check) family() apiFamily { return apiFamilies[[2]string{c.APIVersion, c.Kind}] }

// In says whether the check is meant for a cluster.
func (c *Check) In(cluster string) bool {
	return len(c.Clusters) == 0 || slices.Contains(c.Clusters, cluster)
}

// group is the API group of an apiVersion.
func group(apiVersion string) string {
	g, _, _ := strings.Cut(apiVersion, "/")
	return g
}

// key joins a namespace and a name; cluster-wide objects have no namespace.
func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// splitKey takes a key apart again.
func splitKey(key string) (namespace, name string) {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		return "", key
	}
	return namespace, name
}
