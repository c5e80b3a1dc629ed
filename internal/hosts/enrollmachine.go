package hosts

import (
	"context"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

// A Machine without a Node has no system UUID. A person who enrolls its BMC by the name of the
// Machine confirms that what answers there now is the Machine's: the UUID that it reports. // I8

// byReport reports whether an enrolment takes the system UUID from the BMC: a person named the
// Machine, it has no Node, and nobody wrote its UUID down.
func (n *nodeless) byReport(s Subject, o order.Order) bool {
	return o.Machine != "" && n.view.Node(s.Node) == nil && !bmc.UsableUUID(machineUUID(s))
}

// reportedFor reads the system UUID of the first device of a subject. It refuses a UUID that
// belongs to another machine. The error is a *reason.Refusal.
func (n *nodeless) reportedFor(ctx context.Context, s Subject) (string, error) {
	d := s.Host.Levels[0].Devices[0]
	refuse := func(code reason.Code, why string) (string, error) {
		return "", &reason.Refusal{Reason: code, Message: d.String() + " " + why}
	}
	r, err := n.hosts.readOnce(ctx, d)
	if err != nil {
		return refuse(ReasonOf(err), "could not be read: "+reason.Sentence(err))
	}
	uuid := r.Identity.UUID
	if !d.Driver.Descriptor().Identifies || d.IgnoreUUID || !bmc.UsableUUID(uuid) {
		return refuse(reason.IdentityUnknown, "reports no system UUID by which it could be known again, and Machine "+s.Machine+
			" has no Node: write an entry with machine: "+s.Machine+" and the machine's uuid into hosts.d")
	}
	if why := n.hosts.own.HasUUID(uuid); why != "" { // I13
		return refuse(reason.OwnHost, "is that of this daemon's host: "+why)
	}
	if why := n.view.OtherNodeWithUUID(s.Node, uuid); why != "" { // I9
		return refuse(reason.DuplicateUUID, "reports the system UUID "+uuid+", and "+why)
	}
	return uuid, nil
}

// pinnedMachine is what a pin of a host records about its Machine. The name of an entry for a
// Machine may be used again for another Machine, which may be on another host.
func pinnedMachine(h bmc.Host, machineUID string) string {
	if bmc.IsMachineEntry(h.Name) {
		return machineUID
	}
	return ""
}

// ofOtherMachine reports whether a pin is about a former Machine of the same name.
func ofOtherMachine(p state.Pin, machineUID string) bool {
	return p.MachineUID != "" && machineUID != "" && p.MachineUID != machineUID
}
