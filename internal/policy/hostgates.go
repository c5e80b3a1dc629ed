package policy

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// The objects show before any fresh read that a host must be left alone: by its BareMetalHost, its owner
// forbids it, or somebody else wants it off; by the UUID of its Node, another Node is the same machine.

// pausedHost is the annotation that stops the bare-metal operator for one host.
const pausedHost = "baremetalhost.metal3.io/paused"

// operatorAtWork are the provisioning states in which the bare-metal operator
// switches the host itself. It keeps a host off for our power lock only in the
// states of a host that is in use.
var operatorAtWork = []string{"inspecting", "preparing", "provisioning", "deprovisioning", "powering off before delete", "deleting"}

// OffForbidden returns why the owner of the host's power does not let anybody else
// switch the host off, after "BareMetalHost NAME "; "" if it does. A detached host
// has no owner of its power that would interfere. hasNode: the target has a Node;
// without one, a host in such a state identifies nothing, which is refused before.
func (h *Host) OffForbidden(hasNode bool) string {
	_, paused := h.Annotations[pausedHost]
	switch {
	case h.DisablePowerOff:
		return "has disablePowerOff: true"
	case !h.Online:
		return "has online: false; its owner wants it off"
	case paused:
		return "is paused: its operator would not keep it off, and Ironic may switch it on; remove the annotation " + pausedHost
	case hasNode && slices.Contains(operatorAtWork, h.State):
		return "is " + strconv.Quote(h.State) + ": its operator switches it itself"
	}
	return ""
}

// PowerForbidden returns why the owner of the host's power does not let it be switched off for a
// target, or "". machine is the "namespace/name" of the target, "" if it has none, and consumer
// what the host of that names. byHardware: only its hardware says that it is the host.
func (h *Host) PowerForbidden(machine, consumer string, hasNode, byHardware bool) string {
	name := "BareMetalHost " + h.Key()
	switch why := h.OffForbidden(hasNode); {
	case why != "":
		return name + " " + why
	case h.ConsumerRef != "" && machine != "" && h.ConsumerRef != consumer: // I8
		return name + " belongs to " + h.ConsumerRef + ", not to " + cmp.Or(consumer, machine)
	case h.ConsumerRef == "" && (machine != "" && !hasNode || byHardware): // nothing else says that the host is the Machine's
		return name + " belongs to no Machine, and Machine " + machine + " has no Node"
	}
	return ""
}

// The annotations because of which the bare-metal operator keeps a host off, whatever their values:
// rebootAnnotation, and rebootAnnotation/KEY. PowerLockAnnotation is that of fenced.
const (
	rebootAnnotation    = "reboot.metal3.io"
	PowerLockAnnotation = rebootAnnotation + "/fenced"
)

// OtherPowerLock is an annotation of somebody else because of which the bare-metal operator keeps the
// host off; "" if there is none. Of several it is always the same one.
func (h *Host) OtherPowerLock() string {
	for _, k := range slices.Sorted(maps.Keys(h.Annotations)) {
		if k == rebootAnnotation || strings.HasPrefix(k, rebootAnnotation+"/") && k != PowerLockAnnotation {
			return k
		}
	}
	return ""
}

// Contender says that somebody else wants the host off; "" if nobody does. // I22
func (h *Host) Contender() string {
	if other := h.OtherPowerLock(); other != "" {
		return "BareMetalHost " + h.Key() + " carries the power request " + other
	}
	return ""
}

// areKnownFor reports whether any BareMetalHost is known where a Machine names one. Saved objects may
// lack them all.
func (hosts hostsByName) areKnownFor(m *Machine) bool {
	ref, err := hostRefOf(*m)
	for _, h := range hosts {
		if err == nil && (ref.namespace == "" || h.Namespace == ref.namespace) {
			return true
		}
	}
	return false
}

// refuseHosts refuses what fenced would do to a host that the objects show must be left alone. The daemon
// checks again with uncached reads.
func (w *tables) refuseHosts(r *Report) {
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			t := &c.Targets[j]
			if t.Action == None || c.isDelegated(t) {
				continue
			}
			n, m := w.nodes[t.Node], machineOfTarget(w, t)
			if n != nil {
				t.refuseBecause(reason.DuplicateUUID, w.nodesByUUID.other(n.Name, n.SystemUUID)) // I9
			}
			if c.powerCycles(t) || t.Action != CreateRequest { // a check that asks others knows its own requests
				t.refuseBecause(reason.Contested, w.requests.contender(t, m, n)) // I22
			}
			if m == nil {
				continue
			}
			h, err := w.hosts.of(m)
			t.refuseBecause(reason.Contested, h.Contender()) // I22
			if c.powerCycles(t) {
				w.hosts.refusePowerOwner(t, m, &h, err)
			}
		}
	}
}

// refusePowerOwner refuses to power-cycle a host whose owner forbids it, or that is not the Machine's. err is
// why h was not found.
func (hosts hostsByName) refusePowerOwner(t *TargetReport, m *Machine, h *Host, err error) {
	consumer := cmp.Or(m.Consumer(), h.ConsumerRef) // saved objects may lack the reference
	switch {
	case errors.Is(err, errNoSuchHost) && !hosts.areKnownFor(m), err != nil && !m.NamesHost():
	case err != nil: // hosts.d may name a host, but not who else owns its power // I22
		t.refuseBecause(reason.InvalidHost, err.Error())
	case h.PowerForbidden(t.Machine, consumer, t.Node != "", false) != "":
		t.refuse(reason.PowerOwner)
	}
}

// refuseBecause refuses the action, and adds why to the message. It does nothing if there is no why.
func (t *TargetReport) refuseBecause(code reason.Code, why string) {
	if why != "" {
		t.refuse(code)
		t.Message += "; " + why
	}
}

// powerCycles reports whether fenced itself power-cycles the host for a target: a request from its
// own template needs no object.
func (r *CheckReport) powerCycles(t *TargetReport) bool {
	next := cmp.Or(t.Template, r.template)
	return t.Action == PowerCycle || t.Action == CreateRequest && next != nil && next.IsOwn()
}

// isDelegated reports whether the check's own controller acts on a target, by a request that fenced does
// not make.
func (r *CheckReport) isDelegated(t *TargetReport) bool {
	next := cmp.Or(t.Template, r.template)
	return t.Action == CreateRequest && !r.makesRequests && next != nil && !next.IsOwn()
}

// nodesByUUID are the Nodes by system UUID. One whose UUID identifies no machine is not there.
type nodesByUUID map[string][]*Node

// note adds a Node, or removes it.
func (x nodesByUUID) note(n *Node, known bool) {
	forms := bmc.UUIDForms(n.SystemUUID)
	switch {
	case len(forms) == 0:
	case known:
		x[forms[0]] = append(x[forms[0]], n)
	default:
		drop(x, forms[0], n)
	}
}

// others returns the other Nodes with the system UUID, in any order of its bytes, by name.
func (x nodesByUUID) others(node, systemUUID string) (twins []*Node) {
	for _, form := range bmc.UUIDForms(systemUUID) {
		for _, n := range x[form] {
			if n.Name != node {
				twins = append(twins, n)
			}
		}
	}
	slices.SortFunc(twins, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(twins)
}

// other says which other Node has the system UUID: a host that has registered under a second name. It is
// "" if none has, and for a UUID that identifies no machine. // I9
func (x nodesByUUID) other(node, systemUUID string) string {
	if twins := x.others(node, systemUUID); len(twins) > 0 {
		return "Node " + twins[0].Name + " has the same system UUID"
	}
	return ""
}
