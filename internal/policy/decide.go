package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// recheckCap is the longest a check of the OpenShift lineage goes unlooked at
// while one of its clocks runs.
const recheckCap = 3600

// Decide judges every check of the snapshot at one instant. The order of the
// rules is the order of the lines: each check by itself, then what one check
// does to another, then the control plane as a whole.
func Decide(s Snapshot, now time.Time) Report {
	now = now.UTC()
	v := newView(&s)
	r := Report{At: now, Checks: make([]CheckReport, 0, len(s.Checks)), Errors: []ObjectError{}}
	for i := range s.Checks {
		r.Checks = append(r.Checks, decideCheck(&s.Checks[i], v, now))
	}
	slices.SortFunc(r.Checks, byName)
	refuseOverlaps(&r)
	oneControlPlaneHost(&r, v)

	r.Errors = append(r.Errors, s.Errors...)
	slices.SortFunc(r.Errors, func(a, b ObjectError) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
	})
	return r
}

// decideCheck judges one check as if it were alone in the cluster.
func decideCheck(c *Check, v *view, now time.Time) CheckReport {
	r := CheckReport{
		Kind: c.Kind, APIVersion: c.APIVersion, Namespace: c.Namespace, Name: c.Name,
		Limit: limitText(c.MaxUnhealthy), Targets: []TargetReport{}, UID: c.UID, Source: c.Source,
	}
	if r.State, r.Message = c.State(); r.State != StateActive {
		r.unread, r.idle = c.Selector == nil, map[string]bool{}
		for _, m := range v.selected(c) {
			r.idle[m.NodeName] = true
		}
		return r
	}
	for _, m := range v.selected(c) {
		r.Targets = append(r.Targets, v.judge(c, m, now))
	}
	count(&r, c)
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Action != None && !r.Allowed {
			t.Refusals = slices.Insert(t.Refusals, 0, ShortCircuit)
		}
	}
	return r
}

// count fills in the counters, the gate and the next look. Whatever is not
// healthy counts against the limit: also targets that are still inside their
// timeout, that are being deleted, or that are being remedied.
func count(r *CheckReport, c *Check) {
	r.Expected = len(r.Targets)
	for i := range r.Targets {
		t := &r.Targets[i]
		if t.Verdict == Healthy {
			r.Healthy++
		}
		if s := t.RecheckAfterSeconds; s > 0 && (r.RecheckAfterSeconds == 0 || s < r.RecheckAfterSeconds) {
			r.RecheckAfterSeconds = min(s, recheckCap)
		}
	}
	limit, _ := parseLimit(c.MaxUnhealthy) // State has seen that it parses
	r.MaxUnhealthy = limit.of(r.Expected)
	unhealthy := r.Expected - r.Healthy
	r.Allowed = unhealthy <= r.MaxUnhealthy
	r.RemediationsAllowed = max(0, r.MaxUnhealthy-unhealthy)
	if !r.Allowed {
		r.Message = fmt.Sprintf("%d of %d targets are not healthy, more than maxUnhealthy %s (%d)",
			unhealthy, r.Expected, r.Limit, r.MaxUnhealthy)
	}
}

// State says whether the check can be evaluated, and if not, why.
func (c *Check) State() (State, string) {
	switch {
	case !c.Judged():
		return StateInvalid, fmt.Sprintf("this version does not judge %s %s", c.APIVersion, c.Kind)
	case c.Invalid != "":
		return StateInvalid, c.Invalid
	}
	if _, err := parseLimit(c.MaxUnhealthy); err != nil {
		return StateInvalid, err.Error()
	}
	switch {
	case c.Paused:
		return StatePaused, "the check is paused"
	case c.Disabled != "":
		return StateDisabled, c.Disabled
	}
	return StateActive, ""
}

// byName orders checks for people, whatever order they came in.
func byName(a, b CheckReport) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.Kind, b.Kind), strings.Compare(a.APIVersion, b.APIVersion),
		strings.Compare(a.Source, b.Source))
}
