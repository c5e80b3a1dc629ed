package hosts

import (
	"fmt"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// pointedElsewhere refuses a BareMetalHost whose BMC is not where it was pinned,
// and one that is not where the target's machine was pinned: whoever may write that
// object, or the Machine that names it, need not be trusted with the power of any
// host. hosts.d is the administrator's own. // I10
func (c *Cluster) pointedElsewhere(h bmc.Host, t remediate.Target) *reason.Refusal {
	p, found, err := c.hosts.pins.get(h.Name)
	switch {
	case err != nil:
		return &reason.Refusal{Reason: reason.InvalidHost, Message: "where " + h.Source + " was pinned cannot be read: " + err.Error()}
	case found && !pinnedHere(p, h):
		return changed("%s was pinned at %s and is now at %s", h.Source, p.Address, h.Address())
	case found && bmc.UUIDsMatch(p.SystemUUID, t.SystemUUID):
		return nil
	case found && !bmc.UsableUUID(t.SystemUUID) && p.Node != "" && t.Node != "" && p.Node != t.Node:
		return changed("%s was pinned for Node %s, and nothing shows that %s runs there now", h.Source, p.Node, t.Node)
	}
	other, found := c.hosts.pins.elsewhere(h, t.SystemUUID)
	switch {
	case found:
		return changed("the machine of Node %s was pinned at %s (%s) and is now said to be at %s (%s)",
			t.Node, other.Address, other.Host, h.Address(), h.Source)
	case c.hosts.pins.broken() != nil && bmc.UsableUUID(t.SystemUUID):
		return &reason.Refusal{Reason: reason.InvalidHost, Message: "where machines were pinned cannot all be read: " + c.hosts.pins.broken().Error()}
	}
	return nil
}

func changed(format string, args ...any) *reason.Refusal {
	return &reason.Refusal{Reason: reason.AddressChanged, Message: fmt.Sprintf(format, args...) + "; if that is right, enroll it again"}
}
