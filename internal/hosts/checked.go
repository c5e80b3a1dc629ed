package hosts

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
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

// contradictionAge is for how long a Node must stay alive after the first Off. A Node that has
// just died is Ready for 40 s more.
const contradictionAge = time.Minute

// outletContradictions are the devices that read Off while their Node was Ready. They are not
// kept over a restart: the devices are read again.
type outletContradictions struct {
	mu    sync.Mutex
	first map[string]contradiction // the first of an unbroken series, by host and device
}

// contradiction is one Off reading while the Node was Ready.
type contradiction struct {
	at    time.Time
	lease string // the resourceVersion of the kubelet's Lease then
}

// add returns the first contradiction of the series about a device. It is now if there was none.
func (o *outletContradictions) add(key string, now contradiction) contradiction {
	o.mu.Lock()
	defer o.mu.Unlock()
	first, ok := o.first[key]
	if !ok {
		o.first[key], first = now, now
	}
	return first
}

// drop ends the series about a device.
func (o *outletContradictions) drop(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.first, key)
}

// dropCluster ends the series about the devices of a cluster.
func (o *outletContradictions) dropCluster(cluster string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.first {
		if of, _ := bmc.EntryOf(key); of == cluster {
			delete(o.first, key)
		}
	}
}

// contradict ends an enrolment that a device disproves: the device cannot prove its identity, and
// reads Off while the Node that it should switch stays alive. So it is another outlet now, or none,
// and its Off would be a false proof. // I1, I8
func (c *Cluster) contradict(ctx context.Context, k Checked, d bmc.Device) {
	h, offs := k.Subject.Host, c.hosts.contradictions
	key := h.Name + "\n" + d.Key()
	switch {
	case d.Identifies(), k.Subject.Healthy && k.Reading.State == bmc.Unknown:
		return // a failed reading neither proves nor disproves
	case !k.Subject.Healthy, k.Reading.State == bmc.On:
		offs.drop(key)
		return
	}
	p, found := c.hosts.catalog.enrolment(h.Name)
	if !found || !pinnedHere(p, h) {
		offs.drop(key)
		return
	}
	lease, alive := c.alive(ctx, k.Subject.Node, p.SystemUUID)
	if !alive {
		offs.drop(key)
		return
	}
	now := contradiction{at: k.At, lease: lease}
	if first := offs.add(key, now); now.at.Sub(first.at) >= contradictionAge && now.lease != first.lease {
		c.revoke(ctx, p, k.Subject.Node, fmt.Sprintf("%s read Off while Node %s was Ready; enroll again after checking the outlet", d, k.Subject.Node))
	}
}

// Distrust ends the enrolment of a host whose outlets a run has contradicted, so that the next run
// does not switch them again. It leaves an enrolment that is newer than the contradiction. // I8
func (c *Cluster) Distrust(ctx context.Context, r remediate.Run) {
	if len(r.Contradicted) == 0 {
		return
	}
	at := r.Contradicted[0]
	p, found := c.hosts.catalog.enrolment(r.Target.Host)
	if !found || p.At.After(at.Since) {
		return
	}
	c.revoke(ctx, p, r.Target.Node, fmt.Sprintf("power level %d read Off while a lower one read On; enroll again after checking the outlets", at.Level+1))
}

// alive reads, without any cache, whether the Node of a machine is Ready. lease is the
// resourceVersion of its kubelet's Lease.
func (c *Cluster) alive(ctx context.Context, node, systemUUID string) (lease string, alive bool) {
	t, known := c.opt.View.TargetOn(node)
	if !known {
		return "", false
	}
	return c.opt.View.Alive(ctx, t, systemUUID)
}

// revoke stores that an enrolment has ended, and emits why. If another goroutine has just written
// the pin, revoke does nothing: the next health check tries again.
func (c *Cluster) revoke(ctx context.Context, p state.Pin, node, why string) {
	p.EnrolledBy, p.Revoked, p.At = "", why, time.Now().UTC()
	switch _, err := c.pins.put(ctx, p); {
	case isConflict(err), err != nil && ctx.Err() != nil:
		return
	case err != nil:
		c.emit(event.Event{Type: event.Failed, Node: node, Message: "end the enrolment: " + err.Error()})
		return
	}
	c.emit(event.Event{Type: event.Refused, Node: node, Reason: reason.NotEnrolled, Message: why})
	c.opt.View.Wake()
}
