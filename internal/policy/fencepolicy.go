package policy

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// setting pauses a check inside a maintenance window. due is the next instant at which one of its windows begins
// or ends.
func (fencedFamily) setting(c *Check, a CheckContext, now time.Time) setting {
	st := common{}.setting(c, a, now)
	if st.state != StateActive || now.IsZero() { // zero: evaluated independent of the time
		return st
	}
	now = now.UTC()
	for i := range c.Windows {
		w := &c.Windows[i]
		began, change := w.bounds(now)
		st.due = times.Sooner(st.due, change)
		if !began.IsZero() && st.state == StateActive {
			st.state = StatePaused
			st.message = fmt.Sprintf("in the maintenance window %q of %s that began at %s", w.Text, w.Duration, stamp(began))
		}
	}
	return st
}

// bounds returns when the window that contains now began, zero if there is none,
// and the next instant at which that changes, zero if it never does.
func (w *Window) bounds(now time.Time) (began, change time.Time) {
	// The first start whose window is still open. If windows overlap, it is the one
	// that closes first.
	start := w.Starts.Next(now.Add(-w.Duration))
	switch {
	case start.IsZero(): // no start within the years that the schedule looks ahead
		return began, change
	case start.After(now):
		return began, start
	}
	return start, start.Add(w.Duration)
}

func (fencedFamily) escalates() bool { return true }

// evaluate applies fenced's own health rules to one target, a Machine or a Node. docs/policy.md has a row for each.
func (fencedFamily) evaluate(t *TargetReport, c *Check, _ CheckContext, _ *setting, x *Subject, now time.Time) {
	m, n := x.Machine, x.Node
	switch {
	case m != nil && m.Paused:
		t.set(Skipped, reason.Paused, "the Machine is paused")
	case m != nil && !c.SelectsNodes && m.Suspended != "": // it takes nothing from a policy that selects the Node
		t.set(Skipped, reason.Paused, m.Suspended)
	case m != nil && m.SkipRemediation:
		t.set(Skipped, reason.SkipRequested, "the Machine asks not to be remediated")
	case n == nil && m.NodeName != "" && !x.Gone:
		t.set(Indeterminate, reason.Undecodable, fmt.Sprintf("Node %s could not be decoded", m.NodeName))
	case n == nil && m.NodeName == "" && c.StartupTimeout == 0:
		t.set(Indeterminate, reason.StartupCheckDisabled, "no Node has joined, and nodeStartupTimeout is 0")
	case n == nil && m.NodeName == "" && m.startupClock().IsZero():
		// Without a start time it can never time out; evaluate again after a full
		// timeout.
		t.set(Pending, reason.NodeStartupTimeout, "no Node has joined, and the Machine has no creation time to start the timeout from")
		t.Timeout, t.RecheckAfterSeconds = c.StartupTimeout, wholeSeconds(c.StartupTimeout)
	case t.evaluateClocks(c, c.shorten(x, c.objections(x)), now):
		t.refuseUnderRemediation(c, x)
	case m != nil && m.Deleting:
		t.set(Indeterminate, reason.Deleting, "the Machine is being deleted")
	case n.Deleting:
		t.set(Indeterminate, reason.Deleting, "the Node is being deleted")
	case m != nil && m.ExternalRemediationRequested:
		t.set(Indeterminate, reason.UnderRemediation, "the Machine's remediation has been requested")
	default:
		if own := c.ownRequests(x); len(own) > 0 {
			t.evaluateRecovered(c, n, own, now)
			return
		}
		t.set(Healthy, "", "")
	}
}

// objections lists the problems that a FencePolicy finds.
func (c *Check) objections(x *Subject) []finding {
	switch {
	case x.Node != nil:
		return matching(nil, reason.NodeCondition, "", c.Conditions, x.Node.Conditions.All())
	case x.Gone:
		// No timeout: the Machine had a Node, and somebody removed it.
		return []finding{{reason: reason.NodeNotFound, what: fmt.Sprintf("Node %s does not exist", x.Machine.NodeName), atOnce: true}}
	}
	return []finding{{reason: reason.NodeStartupTimeout, what: "no Node has joined", since: x.Machine.startupClock(), timeout: c.StartupTimeout}}
}

// startupClock is the latest known moment from which a Node could have joined.
func (m *Machine) startupClock() time.Time { return times.Later(m.LastUpdated, m.Created) }

// shorten removes the timeouts of a host that is already off, if the policy says
// so: waiting gains nothing. The finding is the same before and after the
// timeout, so no timeout runs.
func (c *Check) shorten(x *Subject, list []finding) []finding {
	if !c.ShortenOnEvidence || !x.ReadsOff {
		return list
	}
	for i := range list {
		if f := &list[i]; !f.atOnce {
			f.what, f.atOnce = fmt.Sprintf("%s since %s, and the BMC reads Off twice", f.what, stamp(f.since)), true
		}
	}
	return list
}

// refuseUnderRemediation refuses a target that somebody else already removes. A
// Node that is being deleted would keep its host off: a restarted kubelet cannot
// register before the last finalizer is gone.
func (t *TargetReport) refuseUnderRemediation(c *Check, x *Subject) {
	if t.Verdict != Unhealthy || c.Strategy == CountOnly {
		return
	}
	if x.Node != nil && x.Node.Deleting {
		t.refuse(reason.Deleting)
	}
	if m := x.Machine; m != nil && c.Strategy == DeleteMachines && m.OwnerRemediated != "" && m.OwnerRemediated != "True" {
		t.refuse(reason.AlreadyRequested) // its owner has been asked
	}
}

func (fencedFamily) parseLimits(c *Check) error {
	if c.UnhealthyRange != "" {
		if _, err := parseRange(c.UnhealthyRange); err != nil {
			return fmt.Errorf("spec.limit: %w", err)
		}
		return nil
	}
	if _, err := parseLimit(c.MaxUnhealthy); err != nil {
		return fmt.Errorf("spec.limit: %q is neither a whole number nor a percentage", c.MaxUnhealthy.String())
	}
	return nil
}

func (fencedFamily) tally(c *Check, n count) tally {
	y := tally{limit: c.family().limitText(c), reason: reason.ShortCircuit}
	expected, unhealthy, beyond := n.expected, n.expected-n.healthy, "more than"
	if c.UnhealthyRange != "" {
		span, _ := parseRange(c.UnhealthyRange)
		y.min, y.max, y.reason, beyond = span[0], span[1], reason.OutOfRange, "outside"
	} else {
		l, _ := parseLimit(c.MaxUnhealthy)
		y.max = l.of(expected)
	}
	y.allowed = y.min <= unhealthy-n.unlabelled-n.doubtful && unhealthy <= y.max
	if y.allowed {
		y.more = y.max - unhealthy
		y.reason = ""
	} else {
		y.message = fmt.Sprintf("%d of %d targets are not healthy, %s limit %s", unhealthy, expected, beyond, y.limit)
	}
	return y
}
