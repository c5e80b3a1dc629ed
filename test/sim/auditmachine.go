package sim

import (
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/fake"
)

// otherUUID says whether two UUIDs are known and are of two machines.
func otherUUID(a, b string) bool { return a != "" && b != "" && !bmc.UUIDsMatch(a, b) }

// machineOf is the machine whose kubelet has registered a Node; nil if none has. w.mu is held.
func (w *World) machineOf(n *fake.Node) *fake.Host {
	chassis, _, _ := strings.Cut(n.BootID, "-boot-")
	return w.chassis[chassis]
}

// changed is what a look shows of the objects that a run was decided on, where these are others by
// now; "" where they are not.
func changed(t remediate.Target, o remediate.Observation) string {
	switch {
	case o.Node.Exists == remediate.Yes && otherUUID(t.SystemUUID, o.Node.SystemUUID):
		return "the Node is on machine " + o.Node.SystemUUID
	case o.Machine.Exists == remediate.Yes && t.MachineUID != "" && o.Machine.UID != t.MachineUID:
		return "the Machine is another one, " + o.Machine.UID
	case o.BareMetalHostUID != "" && t.BareMetalHostUID != "" && o.BareMetalHostUID != t.BareMetalHostUID:
		return "the BareMetalHost is another one, " + o.BareMetalHostUID
	case o.ClusterUID != "" && t.ClusterUID != "" && o.ClusterUID != t.ClusterUID:
		return "the cluster is another one, " + o.ClusterUID
	}
	return ""
}

// auditTarget checks that what a run takes away is still that of its record, by what this fenced has
// been shown, and that no Off goes to a host that is another machine than its Node's. w.mu is
// held. // I8, I27
func (w *World) auditTarget(c *incarnation, h *host, r remediate.Run, a remediate.Action) {
	last := w.ledger.looks[lookKey{c, h.Name}]
	// Which cluster answers does not matter to an Off for what is off: it changes nothing.
	repeated := a == remediate.SendOff && !h.On && last.fresh.Observation.ClusterUID != r.Target.ClusterUID
	if !last.changed.IsZero() && time.Since(last.changed) > seenWithin && !repeated {
		w.violate("I27", h.Name, "%s does %s for run %s (%s, attempt %d), and sees since %s that %s", c, a, r.ID, r.Step, r.Attempt,
			time.Since(last.changed), changed(r.Target, last.fresh.Observation))
	}
	if a != remediate.SendOff && a != remediate.SetPowerLock {
		return
	}
	if at := h.spare.refuted; h.On && !at.IsZero() && r.Began().After(at.Add(seenWithin+w.plan.apart())) && !otherUUID(r.Target.SystemUUID, h.UUID) {
		w.violate("I8", h.Name, "%s does %s to a host that a health check found to be another machine's than the Node's, %s before run %s",
			c, a, r.Began().Sub(at), r.ID)
	}
}

// auditIsolatedMachine checks which machine a Node that is being isolated is on. A person's word is
// about the Node, whatever machine that is on. w.mu is held. // I27
func (w *World) auditIsolatedMachine(h *host, n *fake.Node, r remediate.Run) {
	m := w.machineOf(n)
	if otherUUID(r.Target.SystemUUID, n.SystemUUID) {
		w.violate("I27", h.Name, "run %s of machine %s isolates the Node of %s", r.ID, r.Target.SystemUUID, n.SystemUUID)
	}
	if m != nil && m != h.Host && !r.IsolatesOnConfirmation() {
		w.violate("I27", h.Name, "run %s isolates the Node of %s, of which nobody has read Off; it is on: %t", r.ID, m.Chassis, m.On)
	}
}

// auditFalseOff checks that a false Off was one: a device has read Off while its host was on. A host
// that somebody switched on, one that nobody can read, and one whose Node tells another UUID were
// off. w.mu is held. // I5
func (w *World) auditFalseOff(r remediate.Run) {
	// A fenced whose clock is right takes the times of one that was ahead for now. // I16
	since, h := times.Earlier(r.Began(), w.ledger.begun[r.ID]).Add(-w.plan.apart()), w.hostOf(r.Target.Node)
	if at, old := w.ledger.old[r.ID]; old {
		since = at
	}
	for _, d := range append(w.ledger.fixed[r.ID], logKey{h: h}) {
		if d.h != h || w.ledger.lies[h.Name].After(since) { // another host's device says nothing about this one
			return
		}
	}
	w.violate("I5", h.Name, "run %s is Held for FalseOff, and no reading of Off was false: %s", r.ID, r.Note)
}
