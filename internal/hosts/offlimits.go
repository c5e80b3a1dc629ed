package hosts

import (
	"cmp"
	"context"
	"slices"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// OwnHost returns why a target is the host that this daemon runs on, "" if it is not. n is its
// Node, or nil. // I13
func (c *Cluster) OwnHost(n *policy.Node, t remediate.Target, uuids ...string) string {
	return c.hosts.own.isTarget(n, t, uuids)
}

// OffLimits returns why this daemon must not switch off the host of an open run, and which gate
// the host would not pass: a daemon on another host may have begun the run, or hosts.d may have
// changed since. // I13
func (c *Cluster) OffLimits(r remediate.Run) (code reason.Code, why string) {
	t := withNode(c.opt.View, r.Target)
	if why := c.OwnHost(c.opt.View.Node(t.Node), t); why != "" {
		return reason.OwnHost, "it is the host that this daemon runs on: " + why
	}
	if r.Manual == nil && c.Protected(t) {
		return reason.Protected, "hosts.d says by now that it is protected"
	}
	return "", ""
}

// withNode is a target with the Node that its Machine has got since the run began. // I23
func withNode(v View, t remediate.Target) remediate.Target {
	if m := v.MachineOf(t); m != nil && t.Node == "" {
		t.Node = m.NodeName
	}
	return t
}

// NoteNodes compares Nodes that have changed with what is stored about their hosts; the next health
// check stores what that contradicts. It records this host's system UUID as soon as its Node is
// seen, and stores it as soon as this instance owns the cluster.
func (c *Cluster) NoteNodes(ctx context.Context, changes []policy.Change) {
	own := c.hosts.own
	for i := range changes {
		if n, ok := changes[i].Value.(*policy.Node); ok && n != nil {
			own.see(n)
			c.pins.compareNode(n)
		}
	}
	uuid := own.seenUUID()
	p, _, err := c.hosts.catalog.pins.get(own.record)
	if uuid == "" || p.SystemUUID == uuid || !c.opt.Lead.Leads() {
		return
	}
	if p.SystemUUID = uuid; err == nil {
		_, err = c.pins.put(ctx, p)
	}
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Message: "remember this host's system UUID: " + err.Error()})
	}
}

// DuplicateOf returns why the host of a run exists twice: two entries lead to one device, or two
// Nodes have one UUID. It is "" if neither is so. A later attempt follows the host to the Node as
// which it came back, so the Node of the former name says nothing about it. // I9
func (c *Cluster) DuplicateOf(r remediate.Run) string {
	t := r.Target
	entry := c.Duplicate(t)
	if entry != "" || r.Attempt > 1 {
		return entry
	}
	return c.opt.View.OtherNodeWithUUID(withNode(c.opt.View, t).Node, cmp.Or(t.SystemUUID, t.ReportedUUID))
}

// Duplicate returns which other host leads to the same machine as a target's. It is "" if none
// does that counts. // I9
func (c *Cluster) Duplicate(t remediate.Target) string {
	return c.hosts.catalog.duplicate(names(c.opt.Name, t))
}

// Protected reports whether an administrator forbids to fence a target automatically.
func (c *Cluster) Protected(t remediate.Target) bool {
	return slices.ContainsFunc(t.Names(), func(of string) bool { return c.hosts.listed.inventory().Protected(c.opt.Name, of) })
}
