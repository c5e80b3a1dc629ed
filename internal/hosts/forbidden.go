package hosts

import (
	"cmp"
	"context"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
)

// Forbidden lists what forbids to switch a subject off, whatever the state of its Node: its host
// cannot be used, leads elsewhere than before, is frozen, is a duplicate, was never enrolled, or
// is this daemon's own.
func (h *Hosts) Forbidden(_ context.Context, s Subject) (list []reason.Refusal) {
	c, err := h.cluster(s.Cluster)
	if err != nil {
		return nil
	}
	add := func(code reason.Code, why string) {
		if why != "" {
			list = append(list, reason.Refusal{Reason: code, Message: why})
		}
	}
	if r, ok := reason.AsRefusal(s.Err); ok {
		list = append(list, *r)
	}
	t := s.target()
	withheld := c.metal.withheld(s.Host, t)
	if withheld != nil {
		list = append(list, *withheld)
	}
	code, why := c.Frozen(t)
	add(code, why)
	if withheld == nil || withheld.Reason != reason.DuplicateHost {
		add(reason.DuplicateHost, h.catalog.duplicate(names(s.Cluster, t)))
	}
	if s.Err == nil {
		add(reason.NotEnrolled, c.unenrolled(s))
	}
	add(reason.OwnHost, c.OwnHost(c.opt.View.Node(s.Node), t, s.SystemUUID))
	return list
}

// unenrolled returns why a device of the subject that cannot prove its identity does not count as
// enrolled. It is "" if each such device is enrolled.
func (c *Cluster) unenrolled(s Subject) string {
	want := c.expected(s.Host, s.target(), false)
	for _, l := range s.Host.Levels {
		for _, d := range l.Devices {
			if !d.Identifies() && s.Host.IdentityMode != identityOff && enrolledVerdict(want) == guard.IdentityNotEnrolled {
				return cmp.Or(want.pin.Revoked, want.pin.Contradicted, "nobody has enrolled "+s.Host.Address()+" for this host")
			}
		}
	}
	return ""
}
