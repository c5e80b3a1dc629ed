package engine

import (
	"cmp"
	"strings"

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

// check gives a check as the ledger has it now, or nil.
func (c *cluster) check(id policy.CheckID) *policy.Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Check(id)
}

// candidateOf drafts the run of one target of a check; false when the target has
// changed since it was judged.
func (c *cluster) candidateOf(check *policy.Check, t *policy.TargetReport) (candidate, bool) {
	c.mu.Lock()
	n, m := c.ledger.Node(t.Node), c.machine(t)
	if (t.Machine != "") != (m != nil) {
		c.mu.Unlock()
		return candidate{}, false
	}
	r := c.baseRun()
	r.Target = c.target(m, n, t.Node)
	lost := c.hostLost(m)
	c.mu.Unlock()
	r.Strategy, r.ControlPlane = strategyOf(check, t), t.ControlPlane
	r.Trigger, r.Check, r.CheckID = t.Trigger, check.Key(), checkID(check.ID())
	r.Limits.ReplaceControlPlane = t.Action == policy.MarkOwner || c.opt.Rules.DeleteControlPlaneMachines
	r.Limits.ReadyTimeout = max(r.Limits.ReadyTimeout, t.StartupTimeout)
	c.override(&r, check)
	return candidate{key: targetKey(t), draft: r, node: n, zoneKey: check.ZoneKey, asks: check, protected: c.hosts.Protected(t.Node), hostLost: lost}, true
}

// override lets a check change the limits and the isolation of its own runs.
func (c *cluster) override(r *remediate.Run, check *policy.Check) {
	d, l := check.Deadlines, &r.Limits
	l.OffDeadline, l.OnDeadline = cmp.Or(d.PowerOff, l.OffDeadline), cmp.Or(d.PowerOn, l.OnDeadline)
	l.ReadyTimeout, l.RunTimeout = cmp.Or(d.NodeReady, l.ReadyTimeout), cmp.Or(d.Run, l.RunTimeout)
	l.MaxAttempts = cmp.Or(check.MaxAttempts, l.MaxAttempts)
	r.Isolation = cmp.Or(remediate.Isolation(check.Isolation), r.Isolation)
	if r.ControlPlane {
		r.Isolation = c.controlPlaneIsolation(r.Target, check)
	}
}

// controlPlaneIsolation: to delete the Node of a k3s or RKE2 server removes its
// etcd member, so that is done only where the operator or the kind of cluster
// says so. A check may ask for the taint, never for the deletion.
func (c *cluster) controlPlaneIsolation(t remediate.Target, check *policy.Check) remediate.Isolation {
	openShift := t.MachineAPI == policy.OpenShiftMachineAPI
	if check != nil {
		openShift = openShift || check.APIVersion == policy.OpenShiftMachineAPI
		if check.Isolation == string(remediate.IsolateTaint) {
			return remediate.IsolateTaint
		}
	}
	switch {
	case c.opt.ControlPlaneIsolation != "":
		return c.opt.ControlPlaneIsolation
	case openShift:
		return remediate.IsolateDelete
	}
	return remediate.IsolateTaint
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

// machine finds the very Machine that was judged. c.mu is held.
func (c *cluster) machine(t *policy.TargetReport) *policy.Machine {
	ns, name, _ := strings.Cut(t.Machine, "/")
	m := c.ledger.MachineIn(t.MachineAPIVersion, ns, name)
	if m == nil || m.UID != t.MachineUID {
		return nil
	}
	return m
}

// baseRun is a draft with everything that does not depend on the target.
func (c *cluster) baseRun() remediate.Run {
	r := remediate.Run{Isolation: c.opt.Isolation, Limits: c.e.opt.Run}
	r.Limits.Reprovision = c.opt.Reprovision
	return r
}

// target names the objects of a run with the UIDs they have now. c.mu is held. // I2
func (c *cluster) target(m *policy.Machine, n *policy.Node, nodeName string) remediate.Target {
	t := remediate.Target{Cluster: c.opt.Name, Node: nodeName}
	if n != nil {
		t.NodeUID, t.BootID, t.SystemUUID = n.UID, n.BootID, n.SystemUUID
	}
	if m != nil {
		t.Namespace, t.Machine, t.MachineUID, t.MachineAPI = m.Namespace, m.Name, m.UID, m.APIVersion
		if h, err := c.ledger.HostOf(m); err == nil { // where none is named, hosts.d may know the way
			t.BareMetalHost = h.Key()
		}
	}
	return t
}

// hostLost says why the BareMetalHost that a Machine names is not found; "" when
// it is, or none is named. Its owner could neither be asked nor told to keep
// still, whatever hosts.d knows. c.mu is held. // I22
func (c *cluster) hostLost(m *policy.Machine) string {
	if m == nil || !m.NamesHost() {
		return ""
	}
	if _, err := c.ledger.HostOf(m); err != nil {
		return "Machine " + m.Key() + ": " + err.Error()
	}
	return ""
}
