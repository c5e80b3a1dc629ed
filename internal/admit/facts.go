package admit

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/run"
)

// gates evaluates every guard for a candidate. p is its probe; nil: it was not probed.
func (c *Cluster) gates(a cluster.Candidate, p *probe, now time.Time) []reason.Gate {
	return guard.Gates(c.opt.Limits.Guards(), c.facts(a, p, now), now)
}

// facts gathers the facts for the guards. Without a probe they are as if BMC, contenders and
// etcd allowed the run.
func (c *Cluster) facts(a cluster.Candidate, p *probe, now time.Time) guard.Facts {
	v := c.checkView() // before QuietUntil: an outage that has ended sets it // I16
	fresh := run.Fresh{}
	if p != nil {
		fresh = p.look.Fresh
	}
	name, names := c.opt.Name, c.runs.Names(a.Draft.Target, fresh) // I23
	f := a.Facts()
	f.Mode, f.ForeignOwner = c.opt.Mode, c.opt.Lead.WhyNotAct(now)
	if !c.opt.Lead.Leads() { // else the Lease says who owns the cluster
		f.OwnerSource = "store"
	}
	f.Paused, f.Held, f.Armed = c.opt.Stop.Paused(name), c.opt.Stop.Held(name, names...), c.opt.Stop.Record(name).Armed
	f.ViewSynced, f.ViewAge, f.ClockSkew, f.QuietUntil = v.Synced, v.Age, v.Skew, c.view.QuietUntil()
	f.QuorumHolds, f.QuorumDetail = true, "etcd is checked just before the run starts"
	f.Host, f.HostUnread, f.ClusterUnread = cmp.Or(a.Draft.Target.BareMetalHost, "not looked up yet"), p == nil, p == nil
	f.InFlightTotal = c.opt.Slots.Count()
	f.Quarantined, f.QuarantinedUntil = c.opt.Stop.Quarantined(name, names...)
	bmcUUID := "" // the UUID that the BMC reports
	if p != nil {
		bmcUUID = p.identity.BMC
	}
	uuid := cmp.Or(a.Draft.Target.SystemUUID, bmcUUID)
	f.OwnHost = c.opt.Hosts.OwnHost(a.Node, a.Draft.Target, uuid, bmcUUID)
	if p != nil {
		a.Draft.Target = p.draft.Target // now with host and address
		p.addTo(&f)
	}
	if a.MissingHost != "" {
		f.HostError, f.HostDetail = reason.InvalidHost, a.MissingHost
	}
	f.FrozenReason, f.Frozen = c.opt.Hosts.Frozen(a.Draft.Target)
	f.Duplicate = c.opt.Hosts.Duplicate(a.Draft.Target)
	c.model.Count(a, uuid, &f, c.opt.Stop.ReleasedAt(name, names...), now)
	return f
}

// addTo adds the results of the probe to the facts.
func (p *probe) addTo(f *guard.Facts) {
	f.Host = p.draft.Target.Host
	f.HostError, f.HostDetail, f.HostUnread, f.ClusterUnread = p.hostError, p.hostDetail, p.hostUnread, p.clusterUnread
	f.Identity, f.Replaced, f.Contested, f.PowerOwner, f.NodeAlive = p.identity, p.replaced, p.contested, p.powerOwner, p.nodeAlive
	f.LeaseTooLong = p.leaseTooLong
	f.ControlPlane = f.ControlPlane || p.controlPlane
	f.QuorumHolds, f.QuorumReason, f.QuorumDetail = p.quorum == "", p.quorum, p.quorumDetail
}
