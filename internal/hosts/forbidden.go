package hosts

import (
	"cmp"
	"context"
	"slices"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
)

// Forbidden lists what forbids to switch a subject off whatever its Node does:
// its host cannot be used, was pointed elsewhere, is frozen, is there twice, was
// never enrolled, or is this daemon's own.
func (h *Hosts) Forbidden(ctx context.Context, s Subject) (list []reason.Refusal) {
	c, err := h.cluster(s.Cluster)
	if err != nil {
		return nil
	}
	add := func(r reason.Code, why string) {
		if why != "" {
			list = append(list, reason.Refusal{Reason: r, Message: why})
		}
	}
	if r, ok := reason.AsRefusal(s.Err); ok {
		list = append(list, *r)
	}
	t := s.target()
	r := c.withheld(s.Host, t)
	if r != nil {
		list = append(list, *r)
	}
	code, why := c.Frozen(t)
	add(code, why)
	if r == nil || r.Reason != reason.DuplicateHost {
		add(reason.DuplicateHost, h.twin(names(s.Cluster, s.Node, s.BareMetalHost)))
	}
	if s.Err == nil {
		add(reason.NotEnrolled, c.unenrolled(ctx, s))
	}
	add(reason.OwnHost, c.OwnHost(c.opt.View.Node(s.Node), t, s.SystemUUID))
	return list
}

// unenrolled says why some device of the subject that tells no identity is vouched
// for by nobody; "" when all are.
func (c *Cluster) unenrolled(ctx context.Context, s Subject) string {
	k := c.claims(ctx, s.Host, s.target(), false)
	for _, l := range s.Host.Levels {
		for _, d := range l.Devices {
			if !d.Identifies() && s.Host.IdentityMode != identityOff && enrolled(k) == guard.IdentityNotEnrolled {
				return cmp.Or(k.pin.Revoked, "nobody has vouched that "+s.Host.Address()+" switches this host")
			}
		}
	}
	return ""
}

// isForbidden says whether a subject's answers must not be pinned.
func (c *Cluster) isForbidden(ctx context.Context, s Subject) bool {
	return slices.ContainsFunc(c.hosts.Forbidden(ctx, s), func(r reason.Refusal) bool { return r.Reason != reason.NotEnrolled })
}
