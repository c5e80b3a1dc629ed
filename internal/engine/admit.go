package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// applicant is a target that a check or a person wants remedied, and the run
// it would become.
type applicant struct {
	key   string
	draft remediate.Run
	node  *policy.Node
	// protected: the administrator's entry says never automatically.
	protected bool
}

func targetKey(t *policy.TargetReport) string { return t.Machine + "|" + t.Node }

// applicant drafts the run of one target of a check.
func (c *cluster) applicant(check *policy.CheckReport, t *policy.TargetReport) applicant {
	snap := c.lastSnapshot()
	r := c.baseRun()
	r.Strategy = remediate.Strategy(t.Action)
	r.ControlPlane = t.ControlPlane
	r.Trigger, r.Check = t.Trigger, check.Namespace+"/"+check.Name
	r.Limits.ReadyTimeout = max(r.Limits.ReadyTimeout, t.StartupTimeout)
	for i := range snap.Machines {
		if m := &snap.Machines[i]; m.Key() == t.Machine && m.UID == t.MachineUID {
			r.Target = c.target(&snap, m, snap.Nodes[t.Node], t.Node)
		}
	}
	a := applicant{key: targetKey(t), draft: r, node: snap.Nodes[t.Node]}
	a.protected = c.protected(t.Node)
	return a
}

// baseRun is a draft with everything that does not depend on the target.
func (c *cluster) baseRun() remediate.Run {
	r := remediate.Run{Isolation: c.opt.Isolation, Limits: c.e.opt.Run}
	r.Limits.Reprovision = c.opt.Reprovision
	return r
}

// target names the objects of a run with the UIDs they have now. // I2
func (c *cluster) target(snap *policy.Snapshot, m *policy.Machine, n *policy.Node, nodeName string) remediate.Target {
	t := remediate.Target{Cluster: c.opt.Name, Node: nodeName}
	if n != nil {
		t.NodeUID, t.BootID, t.SystemUUID = n.UID, n.BootID, n.SystemUUID
	}
	if m != nil {
		t.Namespace, t.Machine, t.MachineUID = m.Namespace, m.Name, m.UID
		if h, err := policy.HostFor(*m, snap.Hosts); err == nil { // without one, hosts.d may know the way
			t.BareMetalHost = h.Key()
		}
	}
	return t
}

func (c *cluster) lastSnapshot() policy.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot
}

func (c *cluster) protected(node string) bool {
	h, found, err := c.e.opt.Hosts.Find(context.Background(), c.opt.Name, node)
	return found && err == nil && h.Protected
}

// facts gathers what the guards ask about. Without a probe they stand as if
// BMC and contenders had nothing against it.
func (c *cluster) facts(a applicant, p *probe, now time.Time) policy.Facts {
	v := c.opt.Watch.View()
	f := policy.Facts{
		Manual: a.draft.Manual != nil, Mode: c.opt.Mode, Paused: c.e.paused(c),
		ViewSynced: v.Synced, ViewAge: v.Age, ClockSkew: v.Skew,
		ControlPlane: a.draft.ControlPlane, Protected: a.protected,
		NeedsHost: a.draft.Strategy == remediate.PowerCycle, Host: cmp.Or(a.draft.Target.BareMetalHost, "not looked up yet"),
	}
	uuid := a.draft.Target.SystemUUID
	if p != nil && uuid == "" {
		uuid = p.identity.BMC
	}
	f.OwnHost = c.ownHost(a.node, uuid)
	if p != nil {
		a.draft.Target = p.draft.Target // now with host and address
		f.Host = p.draft.Target.Host
		f.HostError, f.HostDetail = p.hostError, p.hostDetail
		f.Identity, f.Contested, f.PowerOwner, f.NodeAlive = p.identity, p.contested, p.powerOwner, p.nodeAlive
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Armed, f.QuietUntil = c.stored.Armed, c.quiet
	f.UUIDTwin = c.twin(a.draft.Target.Node, uuid)
	c.countNodes(a, &f)
	c.countRuns(a, &f, now)
	return f
}

// countNodes fills the everything-down and zone facts; c.mu is held.
func (c *cluster) countNodes(a applicant, f *policy.Facts) {
	zoneKey := c.e.opt.Guards.ZoneKey
	if a.node != nil {
		f.Zone = a.node.Labels[zoneKey]
	}
	for _, n := range c.snapshot.Nodes {
		f.ClusterNodes++
		inZone := f.Zone != "" && n.Labels[zoneKey] == f.Zone
		if inZone {
			f.ZoneNodes++
		}
		if !n.Ready() {
			f.ClusterNotReady++
			if inZone {
				f.ZoneNotReady++
			}
		}
	}
}

// countRuns fills the facts about runs; c.mu is held.
func (c *cluster) countRuns(a applicant, f *policy.Facts, now time.Time) {
	for _, r := range c.runs {
		if sameTarget(r.Target, a.draft.Target) {
			if r.Open() {
				f.OpenRun = r.ID
			} else if r.Strategy == remediate.PowerCycle && r.Touched {
				f.LastRunEnded = later(f.LastRunEnded, r.Ended)
			}
			if r.Strategy == remediate.PowerCycle && r.Touched && now.Sub(r.Started) < 24*time.Hour {
				f.RunsLastDay++
			}
		}
		if !r.Open() || r.Step == remediate.Held || r.Step == remediate.RestoreNode {
			continue // the slot is free at registration or Held
		}
		f.InFlight++
		if n := c.snapshot.Nodes[r.Target.Node]; f.Zone != "" && (n == nil || n.Labels[c.e.opt.Guards.ZoneKey] == f.Zone) {
			f.ZoneInFlight++ // a Node that is gone counts in every zone
		}
	}
}

// sameTarget says whether two targets share a Machine, a Node or a host.
func sameTarget(a, b remediate.Target) bool {
	return a.Node != "" && a.Node == b.Node ||
		a.Machine != "" && a.Namespace == b.Namespace && a.Machine == b.Machine ||
		a.Host != "" && a.Host == b.Host ||
		a.Address != "" && a.Address == b.Address || // one BMC under two names
		a.BareMetalHost != "" && a.BareMetalHost == b.BareMetalHost
}

// start makes a draft an open run and gives it a worker; s may be nil. One
// open run per Machine, Node and host: two callers cannot both pass here.
func (c *cluster) start(ctx context.Context, draft remediate.Run, s *session) (remediate.Run, error) {
	now := time.Now().UTC()
	draft.ID = newRunID(now)
	r := remediate.Begin(draft, now)
	c.mu.Lock()
	for _, o := range c.runs {
		if o.Open() && sameTarget(o.Target, r.Target) {
			c.mu.Unlock()
			return r, &Refusal{Reason: policy.UnderRemediation, Message: "run " + o.ID + " is open on the same target"}
		}
	}
	c.runs[r.ID] = r // reserves the target; taken back when the store refuses
	c.mu.Unlock()
	saved, err := c.save(ctx, r, remediate.Nothing)
	if err != nil {
		c.mu.Lock()
		delete(c.runs, r.ID)
		c.mu.Unlock()
		c.emit(Event{Type: EventFailed, Node: r.Target.Node, Message: "save a new run: " + err.Error()})
		return r, err
	}
	c.emit(Event{Type: EventStarted, Node: r.Target.Node, Run: r.ID, Step: r.Step,
		Message: cmp.Or(r.Trigger, "manual fence")})
	c.startWorker(saved, s)
	return saved, nil
}

// newRunID sorts by time and is unique without coordination.
func newRunID(now time.Time) string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return strconv.FormatInt(now.UnixMilli(), 36) + "-" + hex.EncodeToString(b[:])
}
