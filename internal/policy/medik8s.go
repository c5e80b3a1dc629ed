package policy

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// Labels, annotations and conditions that medik8s reads on Nodes.
const (
	excludeLabel       = "remediation.medik8s.io/exclude-from-remediation"
	confirmAnnotation  = "remediation.medik8s.io/manually-confirmed-healthy"
	currentConfig      = "machineconfiguration.openshift.io/currentConfig"
	desiredConfig      = "machineconfiguration.openshift.io/desiredConfig"
	terminating        = "Terminating"
	succeededCondition = "Succeeded"
)

func (medik8sFamily) escalates() bool { return true }

func (medik8sFamily) addContext(w *tables, _ *Check, a *CheckContext) {
	a.MachineChecks = maps.Clone(w.machineChecks)
}

// setting is what medik8s checks before any Node. A request to pause and an upgrade only refuse the actions; the
// results are shown anyway.
func (medik8sFamily) setting(c *Check, a CheckContext, now time.Time) setting {
	st := common{}.setting(c, a, now)
	if st.state != StateActive {
		return st
	}
	if c.Evaluator != "" && !c.isEvaluatedBy(a.Rules.Instance) {
		return setting{state: StatePaused, message: "the check is evaluated by " + c.Evaluator}
	}
	if others := a.conflictingMachineChecks(); len(others) > 0 {
		return setting{state: StateDisabled, conflicting: true, message: fmt.Sprintf(
			"MachineHealthCheck %s may remediate the same Nodes; next to a NodeHealthCheck there may be only one, with %s as its only condition",
			atMostNamed(others), terminating)}
	}
	if len(a.MachineChecks) > 0 {
		st.exempt = terminating
	}
	if len(c.PauseRequests) > 0 {
		st.refuseFirst(reason.PauseRequested, "spec.pauseRequests: "+strings.Join(c.PauseRequests, ", "))
	}
	return st
}

// conflictingMachineChecks names the MachineHealthChecks that disable every
// NodeHealthCheck: all of them, unless there is only one and its only condition is
// the termination of a spot instance.
func (a *CheckContext) conflictingMachineChecks() (names []string) {
	for _, m := range a.MachineChecks {
		if len(a.MachineChecks) == 1 && m.Invalid == "" && len(m.Conditions) == 1 && m.Conditions[0].Type == terminating {
			return nil
		}
		names = append(names, m.Key())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxNamed is how many objects a message names.
const maxNamed = 3

// atMostNamed joins names for a message, and counts those that it leaves out.
func atMostNamed(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// evaluate applies the health rules of medik8s to one Node. It uses only conditions, the check's own requests and
// one label. docs/policy.md has a row for each rule.
func (medik8sFamily) evaluate(t *TargetReport, c *Check, _ CheckContext, st *setting, x *Subject, now time.Time) {
	n := x.Node
	switch {
	case n == nil && x.Gone:
		// The Node was deleted between two reads, on purpose as far as fenced knows.
		t.set(Indeterminate, reason.NodeNotFound, "the Node does not exist any more")
		return
	case n == nil:
		t.set(Indeterminate, reason.Undecodable, "the Node could not be decoded")
		return
	}
	if t.evaluateConditions(c, n, now) {
		if t.Verdict == Pending {
			return // also while its request exists: only the cause may have changed
		}
		if _, other := n.Condition(st.exempt); st.exempt == "" || !other {
			if n.Labels.Get(excludeLabel) == "true" { // it still counts; medik8s ignores an empty value, too
				t.set(Indeterminate, reason.Excluded, t.Message+"; the Node's label excludes it from remediation")
			}
			return
		}
		t.Since, t.Timeout, t.reasonChangesAt = time.Time{}, 0, time.Time{} // the MachineHealthCheck handles it
	}
	if own := c.ownRequests(x); len(own) > 0 {
		t.evaluateRecovered(c, n, own, now)
		return
	}
	t.set(Healthy, "", "")
}

// evaluateRecovered evaluates a Node without an unhealthy condition while
// requests for it exist. It is healthy only when they are gone: a remediator may
// keep one with a finalizer until the Node is safe.
func (t *TargetReport) evaluateRecovered(c *Check, n *Node, own []*Request, now time.Time) {
	until, known := latestDelay(own, c.HealthyDelay)
	_, confirmed := n.Annotations[confirmAnnotation]
	message := fmt.Sprintf("the Node has recovered; %s %s", own[0].Kind, own[0].key())
	switch {
	case c.HealthyDelay == 0 || confirmed || known && now.After(until):
		message += " still exists"
	case c.HealthyDelay < 0:
		message += " stays until somebody confirms with the annotation " + confirmAnnotation
	case !known:
		message += fmt.Sprintf(" stays for healthyDelay %s", c.HealthyDelay)
	default:
		message += fmt.Sprintf(" stays until %s, healthyDelay %s", stamp(until), c.HealthyDelay)
		t.waitUntil(until.Add(1), now)
	}
	t.set(Indeterminate, reason.UnderRemediation, message)
}

// latestDelay is when the last delay ends. known is false if one of the requests
// has no start time, or if delay is not positive.
func latestDelay(own []*Request, delay time.Duration) (until time.Time, known bool) {
	for _, q := range own {
		if q.HealthyDelaySince.IsZero() || delay <= 0 {
			return time.Time{}, false
		}
		until = times.Later(q.HealthyDelaySince.Add(delay), until)
	}
	return until, true
}

// refuseRollingConfig refuses the action while OpenShift replaces the
// configuration of the Node: it reboots the Node for that. The ClusterVersion does not show that in a hosted
// cluster, nor while a MachineConfigPool rolls out a configuration outside of an upgrade.
func (t *TargetReport) refuseRollingConfig(x *Subject) {
	if x.Node == nil || t.Action == None || slices.Contains(t.Refusals, reason.ClusterUpgrading) {
		return
	}
	if is, will := x.Node.Annotations[currentConfig], x.Node.Annotations[desiredConfig]; is != will {
		t.refuse(reason.ClusterUpgrading)
		t.Message = bounded(t.Message + fmt.Sprintf("; its machine-config changes from %q to %q", is, will))
	}
}

// quota is the limit of a NodeHealthCheck: how many Nodes must be healthy, or how
// many may be unhealthy.
type quota struct {
	field string
	limit limit
}

var wholePercent = regexp.MustCompile(`^(100|[0-9]{1,2})%$`)

func (medik8sFamily) parseLimits(c *Check) error {
	_, err := c.quota()
	return err
}

// quota parses the limit that the check has. It must have one: medik8s' webhook refuses a check without, and its
// controller does nothing for it. The 51 % of older versions is a default of their CRD, which the API server
// writes into the object. medik8s does not accept a string without a percent sign.
func (c *Check) quota() (quota, error) {
	q := quota{field: "minHealthy"}
	raw := c.MinHealthy
	switch {
	case raw != nil && c.MaxUnhealthy != nil:
		return q, fmt.Errorf("spec.minHealthy: %s and spec.maxUnhealthy: %s are both set; set only one of them", raw.String(), c.MaxUnhealthy.String())
	case raw == nil && c.MaxUnhealthy == nil:
		return q, errors.New("spec.minHealthy: is missing, and so is spec.maxUnhealthy (set one of them)")
	case raw == nil:
		q.field, raw = "maxUnhealthy", c.MaxUnhealthy
	}
	if raw.Type == intstr.Int {
		q.limit = limit{value: int(raw.IntVal)}
		if raw.IntVal < 0 {
			return q, fmt.Errorf("spec.%s: %d is negative", q.field, raw.IntVal)
		}
		return q, nil
	}
	if !wholePercent.MatchString(raw.StrVal) {
		return q, fmt.Errorf("spec.%s: %q is neither a whole number nor a percentage up to 100%%", q.field, raw.StrVal)
	}
	value, err := strconv.Atoi(strings.TrimSuffix(raw.StrVal, "%"))
	q.limit = limit{value: value, percent: true}
	return q, err
}

// roundedUp returns the limit as a number of expected targets. medik8s rounds
// percentages up; the other API families round down.
func (l limit) roundedUp(expected int) int {
	if !l.percent {
		return l.value
	}
	return (l.value*expected + 99) / 100
}

// tally allows remediation while enough Nodes are healthy.
func (f medik8sFamily) tally(c *Check, n count) tally {
	q, _ := c.quota() // settingOf has checked that it parses
	y, expected, healthy := tally{limit: f.limitText(c)}, n.expected, n.healthy
	least := q.limit.roundedUp(expected)
	if q.field == "maxUnhealthy" {
		if known := expected - n.unlabelled; q.limit.roundedUp(known) > known {
			y.invalid = fmt.Sprintf("spec.maxUnhealthy: %s is more than the %d Nodes that are selected", y.limit, known)
			return y
		}
		least = expected - least
	}
	y.max = expected - least
	y.allowed, y.more = healthy >= least, max(0, healthy-least)
	if y.allowed {
		return y
	}
	y.reason = reason.ShortCircuit
	y.message = fmt.Sprintf("%d of %d Nodes are healthy, fewer than minHealthy %s (%d)", healthy, expected, y.limit, least)
	if q.field == "maxUnhealthy" {
		y.message = fmt.Sprintf("%d of %d Nodes are not healthy, more than maxUnhealthy %s (%d)", expected-healthy, expected, y.limit, y.max)
	}
	return y
}

func (medik8sFamily) limitText(c *Check) string {
	switch {
	case c.MinHealthy != nil:
		return c.MinHealthy.String()
	case c.MaxUnhealthy != nil:
		return c.MaxUnhealthy.String()
	}
	return ""
}

// next returns the state of the storm after the limit was evaluated. An exceeded
// limit starts a storm and ends every cooldown. The first evaluation that is
// within the limit again starts the cooldown. quiet is when the cooldown ends;
// zero if none runs.
func (s Storm) next(allowed bool, cooldown time.Duration, now time.Time) (next Storm, quiet time.Time) {
	switch {
	case !allowed:
		return Storm{Active: true}, time.Time{}
	case !s.Active:
		return Storm{}, time.Time{}
	case s.CooldownSince.IsZero(), s.CooldownSince.After(now): // a time to come was written by a clock that was ahead
		s.CooldownSince = now
	}
	quiet = s.CooldownSince.Add(cooldown)
	if now.Before(quiet) {
		return s, quiet
	}
	return Storm{}, time.Time{}
}

// updateStorm applies the storm rule to an evaluated check.
func (r *CheckReport) updateStorm(c *Check, allowed bool, now time.Time) {
	var quiet time.Time
	r.Storm, quiet = c.Storm.next(allowed, c.StormCooldown, now)
	if quiet.IsZero() {
		return
	}
	r.gate = append(r.gate, reason.StormCooldown)
	r.Message = fmt.Sprintf("more Nodes than allowed were not healthy until %s; nothing new begins before %s, stormCooldownDuration %s",
		stamp(r.Storm.CooldownSince), stamp(quiet), c.StormCooldown)
	// The cooldown is over at that very instant, unlike a timeout; medik8s still
	// adds a second to the recheck.
	r.Due, r.RecheckAfterSeconds = times.Sooner(r.Due, quiet), recheck(quiet.Add(1), now)
}
