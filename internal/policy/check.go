package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
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
	Namespace, Name, UID string
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

	// Invalid says why the check cannot be evaluated: field and value. // I18
	Invalid string
	// Disabled says why the controller of the API family would ignore the check.
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

func (id CheckID) compare(o CheckID) int {
	return cmp.Or(
		strings.Compare(id.Namespace, o.Namespace), strings.Compare(id.Name, o.Name), strings.Compare(id.Kind, o.Kind),
		strings.Compare(id.APIVersion, o.APIVersion), strings.Compare(id.Source, o.Source))
}

// AppliesTo reports whether the check is meant for a cluster.
func (c *Check) AppliesTo(cluster string) bool {
	return len(c.Clusters) == 0 || slices.Contains(c.Clusters, cluster)
}

// Administrators reports whether only administrators can write a check: it has no namespace, or comes
// from a file.
func (c *Check) Administrators() bool {
	return c.Namespace == "" || !FromCluster(c.Source)
}

// FromCluster reports whether the source of a check or budget is the cluster, and not a file.
func FromCluster(source string) bool { return source == "" || source == "cluster" }

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

// CheckContext is what a check depends on besides its targets.
type CheckContext struct {
	Rules Rules
	// Cluster is the Cluster of a Cluster API check; nil if it is not known.
	Cluster *Cluster
	// ClusterUnread: Cluster is nil because it could not be decoded.
	ClusterUnread bool
	// Upgrading describes the upgrade of the cluster that the check waits for; "" if
	// there is none.
	Upgrading string
	// MachineChecks are the OpenShift checks of the same cluster.
	MachineChecks map[CheckID]*Check
	// Disabled says why nobody carries out the requests that fenced makes for the check;
	// "" if somebody does.
	Disabled string
	// Tried lists by the name of a Node or Machine the requests that fenced made for the check, and
	// that exist no more.
	Tried map[string][]Attempt
	// OverTargetLimit: the checks of its author select too many targets together.
	OverTargetLimit bool
}

// setting is whether, and how, a check is evaluated at one instant.
type setting struct {
	state   State
	message string
	// conflicting: state is StateDisabled because of the MachineHealthChecks of the cluster.
	conflicting bool
	// refusals forbid all actions of the check.
	refusals []reason.Code
	// due is when the passage of time changes the setting; zero means never.
	due time.Time
	// exempt is a Node condition. Another check handles the Nodes that have it.
	exempt string
}

// settingOf determines whether a check can be evaluated, and if not, why. The
// result is the same for all of its targets.
func settingOf(c *Check, a CheckContext, now time.Time) setting {
	switch {
	case c.family() == unknownFamily:
		return setting{state: StateInvalid, message: fmt.Sprintf("this version does not evaluate %s %s", c.APIVersion, c.Kind)}
	case c.Invalid != "":
		return setting{state: StateInvalid, message: c.Invalid}
	case a.OverTargetLimit:
		return setting{state: StateInvalid, message: a.Rules.targetLimitMessage(c)}
	}
	if err := c.family().parseLimits(c); err != nil {
		return setting{state: StateInvalid, message: err.Error()}
	}
	st := c.family().setting(c, a, now)
	why := a.Disabled
	if i := goesOnAfter(c); i >= 0 && c.MakesRequests() { // after a Node was deleted, nobody can name it to the next remediator
		why = fmt.Sprintf("the FencedRemediationTemplate must be the last of the escalation, not that of order %d", c.Escalation[i].Order)
	}
	if st.state == StateActive && why != "" {
		return setting{state: StateDisabled, message: why, due: st.due}
	}
	if st.state == StateActive && a.Upgrading != "" {
		st.refuseFirst(reason.ClusterUpgrading, a.Upgrading)
	}
	return st
}

// refuseFirst forbids all actions of the check, before its other refusals.
func (st *setting) refuseFirst(code reason.Code, why string) {
	st.refusals = append([]reason.Code{code}, st.refusals...)
	if st.message != "" {
		why += "; " + st.message
	}
	st.message = why
}

// isEvaluatedBy reports whether the check was paused only for its own controller,
// so that this instance of fenced evaluates it, alone or in turn with others.
func (c *Check) isEvaluatedBy(instance string) bool {
	if c.Evaluator == "" || instance == "" {
		return c.Evaluator != ""
	}
	for name := range strings.SplitSeq(c.Evaluator, ",") {
		if strings.TrimSpace(name) == instance {
			return true
		}
	}
	return false
}

// State reports whether the check can be evaluated by its own content,
// independent of the time, with a message if it cannot.
func (c *Check) State() (State, string) {
	s := settingOf(c, CheckContext{}, time.Time{})
	return s.state, s.message
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

// rungs are the templates of the check in the order in which they are tried. A
// check with a single template has one step that never times out.
func (c *Check) rungs() []Escalation {
	if c.Template != nil {
		return []Escalation{{Template: *c.Template}}
	}
	return c.Escalation
}

// GoesOnAfterFenced reports whether another template of the check follows one of fenced's own.
func GoesOnAfterFenced(c *Check) bool { return goesOnAfter(c) >= 0 }

// goesOnAfter is the first template of fenced's own in the escalation that another one follows; -1: none.
func goesOnAfter(c *Check) int {
	return slices.IndexFunc(c.Escalation[:max(0, len(c.Escalation)-1)], func(e Escalation) bool { return e.Template.IsOwn() })
}
