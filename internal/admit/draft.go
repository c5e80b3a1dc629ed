package admit

import (
	"cmp"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// candidate is a target that a check or a person wants remedied, and the run
// it would become.
type candidate struct {
	key   string
	draft remediate.Run
	node  *policy.Node
	// zoneKey is the check's own; empty for the cluster's.
	zoneKey string
	// protected: the administrator's entry says never automatically.
	protected bool
	// hostLost says why the BareMetalHost that the Machine names is not found.
	hostLost string
	// doubt is why the Node may be another Machine's; checks know it by themselves.
	doubt policy.Doubt
	// gates are those that were asked before its run is begun, for the record.
	gates []reason.Gate
	// asks is the check that wants it; nil: a person does.
	asks *policy.Check
}

func targetKey(t *policy.TargetReport) string { return t.Machine + "|" + t.Node }

// Drafter is what every run of a cluster is drafted with.
type Drafter struct {
	Isolation remediate.Isolation
	// ControlPlaneIsolation is that of control-plane hosts; empty for what fits the cluster.
	ControlPlaneIsolation remediate.Isolation
	Reprovision           bool
	Limits                remediate.Limits

	cluster string
	replace bool // control-plane Machines may be deleted
}

// base is a draft with everything that does not depend on the target.
func (d Drafter) base() remediate.Run {
	r := remediate.Run{Isolation: d.Isolation, Limits: d.Limits}
	r.Limits.Reprovision = d.Reprovision
	return r
}

// override lets a check change the limits and the isolation of its own runs.
func (d Drafter) override(r *remediate.Run, check *policy.Check) {
	of, l := check.Deadlines, &r.Limits
	l.OffDeadline, l.OnDeadline = cmp.Or(of.PowerOff, l.OffDeadline), cmp.Or(of.PowerOn, l.OnDeadline)
	l.ReadyTimeout, l.RunTimeout = cmp.Or(of.NodeReady, l.ReadyTimeout), cmp.Or(of.Run, l.RunTimeout)
	l.MaxAttempts = cmp.Or(check.MaxAttempts, l.MaxAttempts)
	r.Isolation = cmp.Or(remediate.Isolation(check.Isolation), r.Isolation)
	if r.ControlPlane {
		r.Isolation = d.controlPlaneIsolation(r.Target, check)
	}
}

// controlPlaneIsolation: to delete the Node of a k3s or RKE2 server removes its
// etcd member, so that is done only where the operator or the kind of cluster
// says so. A check may ask for the taint, never for the deletion.
func (d Drafter) controlPlaneIsolation(t remediate.Target, check *policy.Check) remediate.Isolation {
	openShift := t.MachineAPI == policy.OpenShiftMachineAPI
	if check != nil {
		openShift = openShift || check.APIVersion == policy.OpenShiftMachineAPI
		if check.Isolation == string(remediate.IsolateTaint) {
			return remediate.IsolateTaint
		}
	}
	switch {
	case d.ControlPlaneIsolation != "":
		return d.ControlPlaneIsolation
	case openShift:
		return remediate.IsolateDelete
	}
	return remediate.IsolateTaint
}

// checked drafts the run that a check asks for, on this target.
func (d Drafter) checked(check *policy.Check, t *policy.TargetReport, target remediate.Target) remediate.Run {
	r := d.base()
	r.Target = target
	r.Strategy, r.ControlPlane = strategyOf(check, t), t.ControlPlane
	r.Trigger, r.Check, r.CheckID = t.Trigger, check.Key(), checkID(check.ID())
	r.Limits.ReplaceControlPlane = t.Action == policy.MarkOwner || d.replace
	r.Limits.ReadyTimeout = max(r.Limits.ReadyTimeout, t.StartupTimeout)
	d.override(&r, check)
	return r
}

// completed is the run that begins on a probe: its draft with host and address,
// and with the role that only the fresh objects show. // I12
func (d Drafter) completed(p *probe, check *policy.Check) remediate.Run {
	r := p.draft
	if p.controlPlane && !r.ControlPlane {
		r.ControlPlane, r.Isolation = true, d.controlPlaneIsolation(r.Target, check)
	}
	return r
}

// checkID tells checks of all kinds apart, whatever version of their API they
// are read in and wherever in a file they stand.
func checkID(id policy.CheckID) string {
	group, _, _ := strings.Cut(id.APIVersion, "/")
	text := id.Kind + "." + group + " " + strings.TrimPrefix(id.Namespace+"/"+id.Name, "/")
	if at := strings.LastIndex(id.Source, ":"); at > 0 {
		text += " in " + id.Source[:at]
	}
	return text
}

// candidate drafts the run of one target of a check; false when the target has
// changed since it was judged.
func (b *Book) candidate(check *policy.Check, t *policy.TargetReport) (candidate, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, m := b.ledger.Node(t.Node), judgedMachine(b.ledger, t)
	if (t.Machine != "") != (m != nil) {
		return candidate{}, false
	}
	r := b.opt.Draft.checked(check, t, targetOf(b.ledger, b.opt.Name, m, n, t.Node))
	return candidate{key: targetKey(t), draft: r, node: n, zoneKey: check.ZoneKey, asks: check, hostLost: hostLost(b.ledger, m)}, true
}

// ordered drafts the run that a person ordered.
func (b *Book) ordered(o order.Order) (candidate, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole {
		return candidate{}, errNotSeen()
	}
	n, m := b.ledger.Node(o.Node), b.ledger.MachineOf(o.Node)
	if n == nil && m == nil {
		return candidate{}, &reason.Refusal{Reason: reason.NoSuchNode, Message: "no Node and no Machine's node is called " + o.Node}
	}
	d := b.opt.Draft
	r := d.base()
	r.Strategy, r.OffOnly = remediate.PowerCycle, o.OffOnly
	r.Target = targetOf(b.ledger, b.opt.Name, m, n, o.Node)
	r.ControlPlane = n != nil && n.ControlPlane || m != nil && m.ControlPlane
	if r.ControlPlane {
		r.Isolation = d.controlPlaneIsolation(r.Target, nil)
	}
	r.Manual = &remediate.Order{Actor: o.Actor, Reason: o.Reason, At: time.Now().UTC()}
	r.Trigger = "manual fence by " + o.Actor + ": " + o.Reason
	return candidate{key: "manual|" + o.Node, draft: r, node: n, hostLost: hostLost(b.ledger, m), doubt: b.ledger.Doubt(m, n)}, nil
}
