package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// Subject is one target: a Machine with its Node, a Machine without one, or a
// Node that no Machine names.
type Subject struct {
	Machine *Machine
	Node    *Node
	// Gone: the Node that the Machine names is known not to exist. If Node is nil
	// and Gone is false, the state of the Node is unknown.
	Gone bool
	// Requests are remediation requests with the target's name, of any kind.
	Requests []*Request
	// Run is the ID of the open run of the target.
	Run string
	// Lease is the kubelet's Lease; zero if it is not known.
	Lease Lease
	// ReadsOff: the BMC has just been read Off twice.
	ReadsOff bool
	// Doubt says why the Machine and the Node may not belong together.
	Doubt Doubt
	// NotOwned says why the Machine does not own the Node that it names.
	NotOwned NotOwned
	// Foreign: nothing shows that the Machine is of this cluster.
	Foreign bool
}

func (x *Subject) nodeName() string {
	switch {
	case x.Node != nil:
		return x.Node.Name
	case x.Machine != nil:
		return x.Machine.NodeName
	}
	return ""
}

func (x *Subject) machineKey() string {
	if x.Machine == nil {
		return ""
	}
	return x.Machine.Key()
}

// doubt compares the Machine and the Node at hand first. They may be newer than
// Doubt.
func (x *Subject) doubt() Doubt {
	if d := mismatch(x.Machine, x.Node); d != (Doubt{}) {
		return d
	}
	return x.Doubt
}

// bySubject orders targets for display, independent of the input order.
func bySubject(a, b Subject) int {
	if a.Machine != nil && b.Machine != nil {
		return cmp.Or(byMachine(a.Machine, b.Machine), strings.Compare(a.nodeName(), b.nodeName()))
	}
	return cmp.Or(strings.Compare(a.machineKey(), b.machineKey()), strings.Compare(a.nodeName(), b.nodeName()))
}

// Evaluate evaluates one target by itself: health, action, and the refusals that
// depend on its Machine and Node alone. The engine calls it again with a fresh
// uncached read just before it acts. // I4
func Evaluate(c *Check, a CheckContext, x Subject, now time.Time) TargetReport {
	st := settingOf(c, a, now)
	if st.state != StateActive {
		t := newTarget(c, &x)
		t.set(Skipped, st.state.Reason(), st.message)
		return t
	}
	t := evaluate(c, a, &st, &x, now)
	if t.Action != None { // a pause or an upgrade may have started since
		for _, r := range st.refusals {
			t.refuse(r)
		}
	}
	return t
}

func newTarget(c *Check, x *Subject) TargetReport {
	t := TargetReport{
		Machine: x.machineKey(), Node: x.nodeName(), Action: None, Refusals: []reason.Code{},
		StartupTimeout: c.StartupTimeout, uncounted: x.Foreign && c.family() == fenced,
	}
	if m := x.Machine; m != nil {
		t.MachineAPIVersion, t.MachineUID, t.ControlPlane = m.APIVersion, m.UID, m.ControlPlane
	}
	if n := x.Node; n != nil {
		t.NodeUID, t.unlabelled, t.ControlPlane = n.UID, n.unlabelled, t.ControlPlane || n.ControlPlane
	}
	return t
}

// evaluate evaluates a target of an active check.
func evaluate(c *Check, a CheckContext, st *setting, x *Subject, now time.Time) TargetReport {
	t := newTarget(c, x)
	c.family().evaluate(&t, c, a, st, x, now)
	if x.Run != "" {
		return t.leftIndeterminate(reason.UnderRemediation, "run "+x.Run+" is open for this target")
	}
	// A Machine that asks to be skipped is skipped whatever its Node is. Every
	// other reason may change with time; the doubt does not.
	skip := t.Reason == reason.Undecodable || t.Verdict == Skipped && !c.SelectsNodes
	if t.Verdict == Unhealthy {
		t.Trigger = fmt.Sprintf("check %s: %s", c.Key(), t.Message)
		t.Action = c.action(x)
		t.refuseTarget(c, a.Rules, x)
		t.refuseNotOwned(x)
		switch { // what a Node or its Machine reports or fails to report; of an order only the power cycle // I4
		case t.Reason == reason.NodeCondition, t.Reason == reason.MachineCondition, t.Reason == reason.NodeStartupTimeout, t.powerCycles(c.Template):
			t.refuseWhileRenewed(x, now)
		}
		if a.Rules.WaitForUpgrade {
			t.refuseRollingConfig(x)
		}
		if t.Action == CreateRequest && c.family().escalates() {
			t.escalate(c, a, x, now)
		}
	}
	if d := x.doubt(); d != (Doubt{}) && !skip {
		handedOver, changes := t.isHandedOver(), t.nextChange()
		t = t.leftIndeterminate(d.Reason, d.Message)
		t.handedOver, t.reasonChangesAt = handedOver, changes // time may show that it was handed over
	}
	return t
}

// action is what the check asks for if a target is unhealthy.
func (c *Check) action(x *Subject) Action {
	failed := c.family() == openShift && x.Machine.Phase == "Failed"
	switch {
	case c.Strategy == CreateRequests:
		return CreateRequest // a template takes precedence
	case c.Strategy == PowerCycleHosts && !failed:
		return PowerCycle
	case c.Strategy == MarkOwners:
		return MarkOwner
	case c.Strategy == CountOnly:
		return None
	}
	return DeleteMachine // a reboot cannot help a Failed Machine
}

// refuseTarget adds the refusals that depend on the target alone.
func (t *TargetReport) refuseTarget(c *Check, rules Rules, x *Subject) {
	if t.Action == None {
		return
	}
	if x.Machine != nil && x.Machine.Deleting {
		t.refuse(reason.Deleting)
	}
	switch t.Action {
	case DeleteMachine:
		t.refuseDeletion(rules, x.Machine)
	case PowerCycle:
		if x.Machine != nil && x.Machine.ExternalRemediationRequested {
			t.refuse(reason.AlreadyRequested)
		}
	case MarkOwner:
		t.refuseHandOver(x.Machine)
	case CreateRequest:
		if c.requestExists(x) {
			t.refuse(reason.AlreadyRequested)
			if c.MakesRequests() && !c.family().escalates() { // escalate names the others
				t.Message += fmt.Sprintf("; %s %s has been made", strings.TrimSuffix(c.Template.Kind, "Template"), x.Machine.Key())
			}
		}
	}
}

// refuseNotOwned refuses what would be done to a Node that its Machine does not own, or to its
// host: controllers that delete a Machine also delete its Node. // I4, I8
// It refuses what no limit would count, too: any number of such targets could be acted on at once. // I11
func (t *TargetReport) refuseNotOwned(x *Subject) {
	switch {
	case t.Action == None:
	case x.NotOwned.Why != "" && !(x.NotOwned.SpareNode && t.Action != PowerCycle):
		t.refuseBecause(reason.NodeNotOwned, x.NotOwned.Why)
	case t.uncounted:
		t.refuseBecause(reason.NodeNotOwned, x.Machine.foreign())
	}
}

// refuseDeletion refuses the deletion of a Machine that no controller recreates,
// and of a control-plane Machine unless the administrator allowed it.
func (t *TargetReport) refuseDeletion(rules Rules, m *Machine) {
	if m == nil || m.ControllerOwner == (Owner{}) {
		t.refuse(reason.NoController)
	}
	if t.ControlPlane && !(rules.DeleteControlPlaneMachines && m != nil && m.ControllerOwner.recreatesControlPlane()) {
		t.refuse(reason.ControlPlane)
	}
}

// requestExists reports whether the request that the check would make exists.
func (c *Check) requestExists(x *Subject) bool {
	if c.Template == nil || x.Machine == nil {
		return false
	}
	kind := strings.TrimSuffix(c.Template.Kind, "Template")
	return slices.ContainsFunc(x.Requests, func(r *Request) bool {
		return r.Kind == kind && r.Namespace == x.Machine.Namespace && r.Name == x.Machine.Name
	})
}

func (t *TargetReport) refuse(r reason.Code) {
	if !slices.Contains(t.Refusals, r) {
		t.Refusals = append(t.Refusals, r)
	}
}

// leftIndeterminate replaces the verdict: the target is not evaluated while code
// applies.
func (t TargetReport) leftIndeterminate(code reason.Code, why string) TargetReport {
	t.set(Indeterminate, code, why)
	t.Action, t.Refusals, t.Template, t.Trigger = None, []reason.Code{}, nil, ""
	t.RecheckAfterSeconds, t.Due, t.reasonChangesAt, t.Since, t.Timeout = 0, time.Time{}, time.Time{}, time.Time{}, 0
	return t
}

// leaseFresh is how long after its last renewal a Lease counts as renewed. The
// kubelet renews it every 10 s.
const leaseFresh = 60 * time.Second

// RenewedUntil returns until when a Lease shows that the kubelet of a Node whose Ready is Unknown still
// runs; zero or past: it does not. It does if its version changed since then. As long as only one
// version was read, the time in it says whether it was renewed since then. No time in it counts
// for longer than the Lease may stand still: a host's clock may be years ahead. A time of the
// condition that is still to come says nothing, and then any change counts. // I4
func RenewedUntil(n *Node, l Lease, now time.Time) time.Time {
	if n == nil {
		return time.Time{}
	}
	ready, ok := n.Condition("Ready")
	since := ready.LastTransition
	if !l.Since.IsZero() && since.After(now) {
		since = time.Time{}
	}
	switch {
	case !ok || ready.Status != "Unknown":
	case l.Before.After(since):
		return l.Since.Add(leaseFresh)
	case l.RenewTime.After(since):
		return times.Sooner(l.Since, l.RenewTime).Add(leaseFresh)
	}
	return time.Time{}
}

// refuseWhileRenewed refuses a Node whose Ready is Unknown while its kubelet still
// renews the Lease. Such a host runs; only its status does not reach the API
// server. // I4
func (t *TargetReport) refuseWhileRenewed(x *Subject, now time.Time) {
	if t.Action == None {
		return
	}
	if until := RenewedUntil(x.Node, x.Lease, now); now.Before(until) {
		t.refuse(reason.NodeAlive)
		t.waitUntil(until, now)
	}
}

// Reason is the code of a check that is in a state other than active.
func (s State) Reason() reason.Code {
	switch s {
	case StatePaused:
		return reason.Paused
	case StateDisabled:
		return reason.CheckDisabled
	}
	return reason.InvalidCheck
}

func (t *TargetReport) set(v Verdict, r reason.Code, message string) {
	t.Verdict, t.Reason, t.Message = v, r, bounded(message)
}

// maxMessage is how much of a message is kept, in bytes: each target of each check has one, and the
// types of conditions in it were written by others.
const maxMessage = 500

// bounded is the start of a message, without the rest in memory.
func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.Clone(strings.ToValidUTF8(message[:maxMessage], "")) + "..."
}

// wait records the running timeout: exact for the daemon's timer, and rounded as
// the API family does for the report.
func (t *TargetReport) wait(since time.Time, timeout time.Duration, now time.Time) {
	t.Since, t.Timeout = since, timeout
	t.waitUntil(deadline(since, timeout), now)
}

// waitUntil records that the result changes at due by the passage of time alone.
func (t *TargetReport) waitUntil(due, now time.Time) {
	t.Due, t.RecheckAfterSeconds = due, recheck(due, now)
}

// waitAtMost records that the result changes at due, unless it changes earlier.
func (t *TargetReport) waitAtMost(due, now time.Time) {
	if !due.IsZero() && (t.Due.IsZero() || due.Before(t.Due)) {
		t.waitUntil(due, now)
	}
}

// recheck is a wait in whole seconds. Rounded up, the one until a deadline is as long as with the upstream controllers:
// timeout - elapsed + 1 s.
func recheck(due, now time.Time) int {
	return wholeSeconds(due.Sub(now))
}

// expired reports whether a timeout is over: strictly after its instant. A zero
// since is infinitely old; a since in the future extends the wait.
func expired(since time.Time, timeout time.Duration, now time.Time) bool {
	return since.IsZero() || since.Add(timeout).Before(now)
}

// deadline is the first instant at which expired is true.
func deadline(since time.Time, timeout time.Duration) time.Time {
	return since.Add(timeout).Add(1) // not timeout + 1, which may be more than there are
}

// wholeSeconds rounds up to seconds.
func wholeSeconds(d time.Duration) int {
	s := d / time.Second
	if d > s*time.Second { // not d + time.Second - 1, which may be more than there are
		s++
	}
	return int(s)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format(time.RFC3339)
}
