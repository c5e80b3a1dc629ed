package hosts

import (
	"context"
	"slices"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Checked records the result of a health check. It indexes what must be unique. It pins the
// identity of a healthy host, for the time when its Node is gone and cannot tell it. // I9, I10
func (h *Hosts) Checked(ctx context.Context, k Checked) {
	c, err := h.cluster(k.Subject.Cluster)
	d, ok := k.device()
	if err != nil || !ok || k.Subject.Err != nil {
		return
	}
	h.own.resolve(ctx, d)
	owner := c.opt.Lead.Leads() // otherwise the owner of the cluster stores the result
	c.pins.compareNode(c.opt.View.Node(k.Subject.Node))
	if owner {
		c.pins.saveContradictions(ctx)
		c.contradict(ctx, k, d)
		c.endIfChanged(ctx, k, d)
	}
	if bmc.KindOf(k.Err).RefusesAccount() { // a person may have corrected the Secret
		c.secrets.forget(d)
	}
	if k.Err != nil {
		return
	}
	h.opt.LockOut.Accepted(d)
	if l := k.Subject.Host.Levels[k.Level]; len(l.Devices) == 1 {
		h.opt.LockOut.Probed(l, nil)
	}
	h.catalog.index.report(k.Subject.Host.Name, d.Key(), deviceReport{
		uuid: h.uuidOf(d, k.Reading.Identity), macs: k.Description.MACs, class: k.Description.Class(),
	})
	if owner {
		h.pinHealthy(ctx, c, k, d)
	}
}

// pinHealthy stores the identity of a healthy host. The pin is read before the Node is looked at
// again: what contradicts it later stays.
func (h *Hosts) pinHealthy(ctx context.Context, c *Cluster, k Checked, d bmc.Device) {
	old, _, err := h.catalog.pins.get(k.Subject.Host.Name)
	match, known := bmc.MACsMatch(k.Subject.MACs, k.Description.MACs)
	otherMACs := known && !match
	first := k.Level == 0 && k.Device == 0 // one device, the first, is enough for the pin
	switch {
	case err == nil && c.pins.enrolmentHolds(k, old):
		next := old
		next.Contradicted = ""
		err = c.pins.update(ctx, old, next, k.At)
	case !k.Subject.Healthy, k.Identity != guard.IdentityMatches, otherMACs, !first, !c.pins.isNodeOn(k.Subject, k.Subject.SystemUUID):
		return
	case !h.mayPin(ctx, k.Subject):
		return
	case err == nil:
		err = c.pins.healthy(ctx, k, d, old)
	}
	if err != nil && ctx.Err() == nil {
		c.emit(event.Event{Type: event.Failed, Node: k.Subject.Node, Message: "store the identity pin: " + err.Error()})
	}
}

// mayPin reports whether what a subject's BMC reports may be pinned. It may not if anything but a
// missing enrolment forbids to switch it off: only a person may follow a BareMetalHost that has
// moved. // I10
func (h *Hosts) mayPin(ctx context.Context, s Subject) bool {
	return !slices.ContainsFunc(h.Forbidden(ctx, s), func(r reason.Refusal) bool { return r.Reason != reason.NotEnrolled })
}

// PinProven stores that a run has proven which machine a BMC powers, for a later run without a
// Node. After a failure only that later run lacks it.
func (c *Cluster) PinProven(ctx context.Context, r remediate.Run) {
	if err := c.pins.proven(ctx, r.Target); err != nil {
		c.emit(event.Event{Type: event.Failed, Node: r.Target.Node, Run: r.ID, Message: "store the identity pin: " + err.Error()})
	}
}
