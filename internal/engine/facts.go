package engine

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// facts gathers what the guards ask about. Without a probe they stand as if
// BMC, contenders and etcd had nothing against it.
func (c *cluster) facts(a candidate, p *probe, now time.Time) guard.Facts {
	v := c.watchView() // one whose outage is over brings its quiet period along // I16
	f := guard.Facts{
		Manual: a.draft.Manual != nil, Mode: c.opt.Mode, ForeignOwner: c.lead.WhyNotAct(now), OwnerSource: c.ownerSource(),
		Paused: c.e.stop.Paused(c.opt.Name), Held: c.e.stop.Held(c.opt.Name, a.draft.Target.Node),
		ViewSynced: v.Synced, ViewAge: v.Age, ClockSkew: v.Skew, Protected: a.protected,
		ControlPlane: a.draft.ControlPlane, QuorumHolds: true, QuorumDetail: "etcd is asked just before",
		NeedsHost: a.draft.Strategy == remediate.PowerCycle, Host: cmp.Or(a.draft.Target.BareMetalHost, "not looked up yet"),
	}
	uuid := a.draft.Target.SystemUUID
	if p != nil && uuid == "" {
		uuid = p.identity.BMC
	}
	told := ""
	if p != nil {
		told = p.identity.BMC
	}
	f.OwnHost = c.hosts.OwnHost(a.node, a.draft.Target, uuid, told)
	if p != nil {
		a.draft.Target = p.draft.Target // now with host and address
		f.Host = p.draft.Target.Host
		f.HostError, f.HostDetail = p.hostError, p.hostDetail
		f.Identity, f.Contested, f.PowerOwner, f.NodeAlive = p.identity, p.contested, p.powerOwner, p.nodeAlive
		f.ControlPlane = f.ControlPlane || p.controlPlane
		f.QuorumHolds, f.QuorumReason, f.QuorumDetail = p.quorum == "", p.quorum, p.quorumDetail
	}
	if a.hostLost != "" {
		f.HostError, f.HostDetail = reason.InvalidHost, a.hostLost
	}
	f.FrozenReason, f.Frozen = c.hosts.Frozen(a.draft.Target)
	f.Duplicate = c.hosts.Duplicate(a.draft.Target)
	f.Quarantined, f.QuarantinedUntil = c.e.stop.Quarantined(c.opt.Name, a.draft.Target.Node)
	f.Armed = c.record().Armed
	forgiven := c.e.stop.ReleasedAt(c.opt.Name, a.draft.Target.Node)
	c.mu.Lock()
	defer c.mu.Unlock()
	f.QuietUntil = c.quiet
	f.NextStart, f.StartsLastHour = c.nextStart(now)
	f.NodeWithSameUUID = c.twin(a.draft.Target.Node, uuid)
	c.countNodes(a, &f)
	c.countRuns(a, &f, forgiven, now)
	return f
}

// countNodes fills the everything-down and zone facts; c.mu is held.
func (c *cluster) countNodes(a candidate, f *guard.Facts) {
	if a.node != nil {
		f.Zone = a.node.Labels[c.zoneKey(a)]
	}
	fleet := c.fleet(c.zoneKey(a), f.Zone)
	f.ClusterNodes, f.ClusterNotReady = fleet.Nodes, fleet.NotReady
	f.ZoneNodes, f.ZoneNotReady = fleet.ZoneNodes, fleet.ZoneNotReady
	if a.node == nil && a.draft.Target.Machine != "" && a.draft.Target.Node != "" && !c.anyMachineHasItsNode() {
		f.NodesMismatch = "no Machine's Node is among them"
	}
}

func (c *cluster) zoneKey(a candidate) string { return cmp.Or(a.zoneKey, c.e.opt.Guards.ZoneKey) }

// fleet counts Nodes. The ledger knows the zones of one key; those of a check's
// own key are counted here, for the few candidates that such a check has.
func (c *cluster) fleet(key, zone string) policy.Fleet {
	if zone == "" || key == c.opt.Rules.ZoneKey {
		return c.ledger.Fleet(zone)
	}
	f := c.ledger.Fleet("")
	for n := range c.ledger.Nodes() {
		if n.Labels[key] != zone {
			continue
		}
		f.ZoneNodes++
		if !n.Ready() {
			f.ZoneNotReady++
		}
	}
	return f
}

// anyMachineHasItsNode says whether Machines and Nodes are of one cluster: when
// every Machine's Node is missing, the view is of another cluster's Nodes. Where
// all is well the first Node answers.
func (c *cluster) anyMachineHasItsNode() bool {
	for n := range c.ledger.Nodes() {
		if c.ledger.MachineOf(n.Name) != nil {
			return true
		}
	}
	return false
}

// countRuns fills the facts about runs. Since forgiven a person lets the host be fenced
// again. c.mu is held.
func (c *cluster) countRuns(a candidate, f *guard.Facts, forgiven, now time.Time) {
	h := c.history(a.draft.Target, forgiven)
	f.LastRunEnded, f.RunsLastDay, f.FailedRunsInARow = h.lastEnded(), h.within(now, 24*time.Hour), h.notDone()
	for _, r := range c.runs {
		if !r.Open() {
			continue
		}
		same := r.Target.Overlaps(a.draft.Target)
		if same {
			f.OpenRun = r.ID
		} else if r.ControlPlane && f.ControlPlane {
			f.ControlPlaneRun = r.ID // Held ones, too
		}
		if inFlight(r) {
			f.InFlight++
		}
		if f.Zone != "" && offInZone(r) && c.mayBeIn(f.Zone, c.zoneKey(a), r) {
			f.ZoneInFlight++
		}
	}
	f.InFlightTotal = max(c.e.slots.Count(), f.InFlight)
}

// mayBeIn says whether a run's host is in a zone. A Node that was made again, by a kubelet
// or from Git, may lack the label until it is restored: then that of the Node which the run
// began with counts, and where this daemon has not seen it, the host counts in every zone.
// c.mu is held. // I11
func (c *cluster) mayBeIn(zone, key string, r remediate.Run) bool {
	if n := c.ledger.Node(r.Target.Node); n != nil && (n.UID == r.Target.NodeUID || n.Labels[key] != "") {
		return n.Labels[key] == zone
	}
	labels, known := c.labels[r.ID]
	return !known || labels[key] == zone
}

// ownerSource is what says whose the cluster is; "" where that is the Lease.
func (c *cluster) ownerSource() string {
	if !c.lead.Leads() {
		return "store"
	}
	return ""
}
