package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The kinds of checks, and the API versions that fenced evaluates.
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

// apiFamily selects the rules that a check follows.
type apiFamily int

const (
	unknownFamily apiFamily = iota
	openShift
	clusterAPI
	medik8s
	fenced
)

// apiFamilies maps the kinds of checks to their API family.
var apiFamilies = map[[2]string]apiFamily{
	{OpenShiftMachineAPI, MachineHealthCheckKind}: openShift,
	{ClusterAPIV1Beta1, MachineHealthCheckKind}:   clusterAPI,
	{ClusterAPIV1Beta2, MachineHealthCheckKind}:   clusterAPI,
	{Medik8sAPI, NodeHealthCheckKind}:             medik8s,
	{FencedAPI, FencePolicyKind}:                  fenced,
}

// Strategy is how a check wants its unhealthy targets remediated.
type Strategy string

// The strategies.
const (
	// DeleteMachines deletes the Machine, so that its owner creates another. It is
	// OpenShift's default.
	DeleteMachines Strategy = "DeleteMachine"
	// PowerCycleHosts is selected by the annotation external-baremetal.
	PowerCycleHosts Strategy = "PowerCycle"
	// CreateRequests is selected by a remediation template.
	CreateRequests Strategy = "CreateRequest"
	// MarkOwners is the Cluster API's default without a template: the Machine's
	// owner replaces it.
	MarkOwners Strategy = "MarkOwner"
	// CountOnly counts targets and never remediates them.
	CountOnly Strategy = "None"
)

// Check is one health check, with every field parsed. A check that cannot be
// evaluated keeps its identity and says why in Invalid, so that it never
// disappears silently.
type Check struct {
	Kind, APIVersion     string
	Namespace, Name      string
	UID, ResourceVersion string
	Annotations          map[string]string

	// Selector selects Machines of the check's own namespace, or Nodes. Nil means
	// that the selector could not be read; it selects nothing. The selector of a
	// Cluster API check includes the label of its cluster.
	Selector     labels.Selector
	SelectsNodes bool
	// ClusterName is spec.clusterName of a Cluster API check.
	ClusterName string

	Conditions        []UnhealthyCondition
	MachineConditions []UnhealthyCondition
	// StartupTimeout is how long a Machine may be without a Node; 0 disables this
	// check.
	StartupTimeout time.Duration
	// MaxUnhealthy and MinHealthy are the limit as written; nil is the default of
	// the API family.
	MaxUnhealthy, MinHealthy *intstr.IntOrString
	// UnhealthyRange is "[min-max]"; empty is none.
	UnhealthyRange string
	Strategy       Strategy
	Template       *Template
	// Escalation is the ordered list of templates that replaces Template.
	Escalation []Escalation
	Paused     bool
	// PauseRequests is spec.pauseRequests of a NodeHealthCheck: reasons not to
	// remediate.
	PauseRequests []string
	// Evaluator is the annotation fenced.io/evaluator: the instances of fenced, with
	// commas between them, that stand in for the check's own controller. A MachineHealthCheck is paused for
	// that controller, the controller of a NodeHealthCheck is stopped.
	Evaluator string
	// HealthyDelay is how long a request stays after the Node recovered; a negative
	// value means until somebody confirms.
	HealthyDelay time.Duration
	// StormCooldown is how long no remediation starts after the limit was exceeded.
	StormCooldown time.Duration
	Storm         Storm
	// Attempts are the requests made for each Node that is still unhealthy, from
	// the status of the check.
	Attempts map[string][]Attempt

	// Isolation, MaxAttempts and Deadlines override the configuration unless zero.
	Isolation   string
	MaxAttempts int
	Deadlines   Deadlines
	// ZoneKey overrides guards.zoneKey.
	ZoneKey string
	Windows []Window
	// ShortenOnEvidence skips the timeout of a target whose BMC reads Off twice.
	ShortenOnEvidence bool

	// Invalid is why the check cannot be evaluated: field and value. // I18
	Invalid string
	// Disabled is why the controller of the API family would ignore the check.
	Disabled string

	// Clusters restricts a check that came from a file; empty is every cluster.
	Clusters []string
	// Source is where the check came from: "cluster", or file:line.
	Source string
}

// Storm is the state of a check's update storm: more targets were unhealthy than
// its limit.
type Storm struct {
	Active bool
	// CooldownSince is when the storm ended; zero while no cooldown runs.
	CooldownSince time.Time
}

// Deadlines are the deadlines of a policy for its own runs; 0 keeps the daemon's.
type Deadlines struct {
	PowerOff, PowerOn, NodeReady, Run time.Duration
}

// Escalation is one step of a check that escalates.
type Escalation struct {
	Template Template
	Order    int
	Timeout  time.Duration
}

// Attempt is one request that a check made, as its status records it.
type Attempt struct {
	APIVersion, Kind, TemplateName string
	Started                        time.Time
	// TimedOut is when the check gave up on the request; zero if it did not.
	TimedOut time.Time
}

// Window is a recurring maintenance window. The check is paused inside it.
type Window struct {
	// Text is the schedule as written.
	Text string
	// Starts returns the first start after an instant.
	Starts   interface{ Next(time.Time) time.Time }
	Duration time.Duration
}

// DisruptionBudget limits how many of its Nodes or Machines may be unavailable,
// whichever checks cover them.
type DisruptionBudget struct {
	Name     string
	Selector labels.Selector
	// SelectsMachines: the selector selects Machines by their labels, not Nodes.
	SelectsMachines bool
	MaxUnavailable  intstr.IntOrString
	Clusters        []string
	Invalid         string
	Source          string
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

// IsOwn reports whether fenced itself carries out the requests that are made from
// the template.
func (p *Template) IsOwn() bool {
	return group(p.APIVersion) == group(FencedAPI) && p.Kind == FencedRemediationKind+"Template"
}

// MakesRequests reports whether fenced makes the remediation requests of the check,
// in place of a controller of its own. The check must be Active.
func (c *Check) MakesRequests() bool {
	return c.Strategy == CreateRequests && (c.family() == fenced || c.Evaluator != "" && (c.Paused || c.family() == medik8s))
}

// AsksOthers reports whether fenced makes requests of the check that another remediator carries
// out. For those from its own template it makes no object.
func (c *Check) AsksOthers() bool {
	return c.MakesRequests() && slices.ContainsFunc(c.rungs(), func(e Escalation) bool { return !e.Template.IsOwn() })
}

// HandsOver reports whether an action of the check is done by a request that fenced
// makes. fenced's own template needs no request: fenced fences at once.
func (c *Check) HandsOver(t *TargetReport) bool {
	next := cmp.Or(t.Template, c.Template)
	return t.Action == CreateRequest && next != nil && c.MakesRequests() && !next.IsOwn()
}

// ownTemplateInFront says why an escalation that fenced carries out cannot begin with fenced's
// own template: after a Node was deleted, nobody can name it to the next remediator.
func ownTemplateInFront(c *Check) string {
	if i := goesOnAfter(c); i >= 0 && c.MakesRequests() {
		return fmt.Sprintf("the FencedRemediationTemplate must be the last of the escalation, not that of order %d", c.Escalation[i].Order)
	}
	return ""
}

// GoesOnAfterFenced reports whether another template of the check follows one of fenced's own.
func GoesOnAfterFenced(c *Check) bool { return goesOnAfter(c) >= 0 }

// goesOnAfter is the first template of fenced's own in the escalation that another one follows; -1: none.
func goesOnAfter(c *Check) int {
	return slices.IndexFunc(c.Escalation[:max(0, len(c.Escalation)-1)], func(e Escalation) bool { return e.Template.IsOwn() })
}

// Templates lists the templates of the check, in the order in which they are tried.
func (c *Check) Templates() []Template {
	var list []Template
	for _, e := range c.rungs() {
		list = append(list, e.Template)
	}
	return list
}

// Mark names the check on the requests that fenced makes for it.
func (c *Check) Mark() string { return c.Kind + "." + group(c.APIVersion) + " " + c.Key() }

// Key is "namespace/name". It names the check in messages and in maps.
func (c *Check) Key() string { return key(c.Namespace, c.Name) }

// ID identifies the check among checks of all kinds.
func (c *Check) ID() CheckID {
	return CheckID{c.Kind, c.APIVersion, c.Namespace, c.Name, c.Source}
}

// CheckID identifies a check among all kinds and sources.
type CheckID struct {
	Kind, APIVersion, Namespace, Name, Source string
}

func (c *Check) family() apiFamily { return apiFamilies[[2]string{c.APIVersion, c.Kind}] }

// AppliesTo reports whether the check is meant for a cluster.
func (c *Check) AppliesTo(cluster string) bool {
	return len(c.Clusters) == 0 || slices.Contains(c.Clusters, cluster)
}

// group returns the API group of an apiVersion.
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

// splitKey splits a key into namespace and name.
func splitKey(key string) (namespace, name string) {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		return "", key
	}
	return namespace, name
}
