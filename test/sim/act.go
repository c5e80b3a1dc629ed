package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fenced/fenced/internal/remediate"
)

var errChanged = errors.New("it changed since it was saved")

// Act implements engine.Kube.
func (k kube) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w := k.inc.i.w
	w.do(func() {
		w.note(r.Target.Node, "%s: %s", k.inc, a)
		w.auditAction(k.inc, r, a, b)
	})
	if err := k.request(ctx, string(a)); err != nil {
		return err
	}
	var err error
	w.do(func() { err = w.api.act(r, a, backups, b) })
	if lost := k.answer(ctx, string(a)); lost != nil {
		return lost
	}
	return err
}

// act does one write, under the preconditions that it carries. // I2
func (a *apiServer) act(r remediate.Run, action remediate.Action, backups [][]byte, b remediate.Backup) error {
	n, m := a.nodes[r.Target.Node], a.metal[r.Target.Node]
	switch action {
	case remediate.SetHold, remediate.ReleaseHold:
		if m == nil {
			return errors.New("there is no such BareMetalHost")
		}
		m.hold = action == remediate.SetHold
		a.showMetal(m)
	case remediate.IsolateNode:
		if n == nil {
			return nil
		}
		if b.UID == "" || b.UID != r.Target.NodeUID {
			return errors.New("no backup of the Node that was decided on")
		}
		if !a.w.defect.IgnoresPreconditions && (n.UID != b.UID || fmt.Sprint(n.ResourceVersion) != b.ResourceVersion) {
			return errChanged
		}
		a.isolate(n, r, b)
	case remediate.RestoreTargetNode:
		if n == nil || n.UID != r.NewNodeUID {
			return errors.New("it is another Node than the one that registered")
		}
		if !a.w.defect.RestoresNothing {
			a.restore(n, r, backups)
		}
	case remediate.DeleteTargetMachine:
		if m := a.machines[r.Target.Node]; m != nil && m.uid == r.Target.MachineUID {
			a.deprovision(r.Target.Node)
		}
	default:
		return fmt.Errorf("unexpected action %s", action)
	}
	return nil
}

func (a *apiServer) isolate(n *node, r remediate.Run, b remediate.Backup) {
	a.w.auditIsolated(n, r, b)
	if r.Isolation == remediate.IsolateDelete {
		a.remove(n.Name)
		return
	}
	c := *n
	c.Taints = append(slices.Clone(n.Taints), outOfService)
	a.put(&c)
}

// restore gives a Node what was saved; the live value wins.
func (a *apiServer) restore(n *node, r remediate.Run, backups [][]byte) {
	c := *n
	c.Labels, c.Taints = maps.Clone(n.Labels), slices.Clone(n.Taints)
	for _, old := range decoded(backups) {
		for k, v := range old.Labels {
			if _, ok := c.Labels[k]; !ok {
				c.Labels[k] = v
			}
		}
		for _, t := range old.Taints {
			if t != outOfService && !slices.Contains(c.Taints, t) {
				c.Taints = append(c.Taints, t)
			}
		}
		c.Cordoned = c.Cordoned || old.Cordoned
	}
	if r.Isolation == remediate.IsolateTaint {
		c.Taints = slices.DeleteFunc(c.Taints, func(t string) bool { return t == outOfService })
	}
	a.put(&c)
}

// deprovision is what follows the deletion of a Machine: its host is erased.
func (a *apiServer) deprovision(node string) {
	a.next()
	delete(a.machines, node)
	a.show(machineID("m-"+node), nil)
	if a.nodes[node] != nil {
		a.remove(node)
	}
	if h := a.w.hostOf(node); h != nil {
		h.gone = true
		h.power(false, "deprovisioned")
	}
}
