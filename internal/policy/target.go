package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Judge judges one target by itself: health, action, and the refusals that the
// Machine and its Node show. The engine asks it again with a fresh uncached
// read just before it acts. // I4
//
// gone means that the Node is known not to exist; n nil without gone means that
// nothing is known about it.
func Judge(c Check, m Machine, n *Node, gone bool, now time.Time) TargetReport {
	t := TargetReport{
		Machine: m.Key(), Node: m.NodeName, Action: None, Refusals: []Reason{},
		MachineUID: m.UID, MachineResourceVersion: m.ResourceVersion,
		ControlPlane:   m.ControlPlane || n != nil && n.ControlPlane,
		StartupTimeout: c.StartupTimeout,
	}
	if n != nil {
		t.NodeUID = n.UID
	}
	if state, message := c.State(); state != StateActive {
		t.set(Skipped, stateReason(state), message)
		return t
	}
	t.judge(&c, &m, n, gone, now)
	if t.Verdict == Unhealthy {
		t.Trigger = fmt.Sprintf("check %s: %s", c.Key(), t.Message)
		t.Action = c.action(&m)
		t.refuseTarget(&m)
	}
	return t
}

// action is what the check asks for about an unhealthy Machine.
func (c *Check) action(m *Machine) Action {
	switch {
	case c.Strategy == CreateRequests:
		return CreateRequest // a template wins over everything
	case c.Strategy == PowerCycleHosts && m.Phase != "Failed":
		return PowerCycle
	}
	return DeleteMachine // a reboot cannot help a Failed Machine
}

// refuseTarget adds the refusals that one Machine shows by itself.
func (t *TargetReport) refuseTarget(m *Machine) {
	if m.Deleting {
		t.refuse(Deleting)
	}
	switch t.Action {
	case DeleteMachine:
		if m.ControllerOwner == (Owner{}) {
			t.refuse(NoController)
		}
		if t.ControlPlane {
			t.refuse(ControlPlane)
		}
	case PowerCycle:
		if m.ExternalRemediationRequested {
			t.refuse(AlreadyRequested)
		}
		if t.ControlPlane {
			t.refuse(QuorumUnknown) // I12
		}
	}
}

func (t *TargetReport) refuse(r Reason) {
	if !slices.Contains(t.Refusals, r) {
		t.Refusals = append(t.Refusals, r)
	}
}

// underRemediation replaces the verdict: until the run ends, nobody judges.
func (t TargetReport) underRemediation(why string) TargetReport {
	t.set(Indeterminate, UnderRemediation, why)
	t.Action, t.Refusals = None, []Reason{}
	t.RecheckAfterSeconds, t.Due = 0, time.Time{}
	return t
}

// leaseFresh is how long after its last renewal a Lease counts as moving: the
// kubelet renews every 10 s.
const leaseFresh = 60 * time.Second

// refuseAlive refuses a Node whose Ready is Unknown while its kubelet still
// renews the Lease: it runs, only its status does not get through. // I4
func (t *TargetReport) refuseAlive(n *Node, lease Lease, now time.Time) {
	if n == nil || t.Reason != NodeCondition {
		return
	}
	ready, ok := n.condition("Ready")
	if !ok || ready.Status != "Unknown" || !lease.RenewTime.After(ready.LastTransition) {
		return
	}
	still := lease.RenewTime.Add(leaseFresh)
	if !now.Before(still) {
		return
	}
	t.refuse(NodeAlive)
	t.Due, t.RecheckAfterSeconds = still, wholeSeconds(still.Sub(now))
}

// request names the remediation request that the check would make.
func (c *Check) request(m *Machine) ObjectKey {
	if c.Template == nil {
		return ObjectKey{}
	}
	kind := strings.TrimSuffix(c.Template.Kind, "Template")
	return ObjectKey{Kind: kind, Namespace: m.Namespace, Name: m.Name}
}

func stateReason(s State) Reason {
	switch s {
	case StatePaused:
		return Paused
	case StateDisabled:
		return CheckDisabled
	}
	return InvalidCheck
}
