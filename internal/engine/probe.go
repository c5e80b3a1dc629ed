package engine

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// probe is what was found out about a candidate before a run is begun: its
// host, whose BMC answers, and who else is at work. A run that starts on it
// takes over its BMC session.
type probe struct {
	running bool
	at      time.Time
	draft   remediate.Run
	session *power.Session
	levels  []levelState

	// withheld: there is a host, and no password may be sent to its BMC.
	withheld   bool
	hostError  reason.Code
	hostDetail string
	identity   guard.IdentityFact
	contested  string
	powerOwner string
	nodeAlive  bool
	lease      remediate.Lease
	// controlPlane: the fresh Node or Machine says so, whatever the view says.
	controlPlane bool
	quorum       reason.Code // why etcd would not survive; "" when it would
	quorumDetail string
}

// runProbe fills the probe of a candidate and asks for a decision.
func (c *cluster) runProbe(ctx context.Context, a candidate) {
	c.mu.Lock()
	before := c.probes[a.key]
	c.mu.Unlock()
	p := c.probeTarget(ctx, a.draft, before)
	if ctx.Err() != nil && p.session != nil { // the daemon stops: nobody will take it
		p.session.Close(ctx)
		c.dropProbe(a.key) // or it would seem to run for ever // L4
		return
	}
	c.mu.Lock()
	c.probes[a.key] = p
	c.mu.Unlock()
	c.wake()
}

// probeTarget is the first look at a target: BMC first, then the cluster, so that
// the Lease is younger than the power reading. before is what the last probe
// found; nil for the first.
func (c *cluster) probeTarget(ctx context.Context, draft remediate.Run, before *probe) *probe {
	p := &probe{draft: draft}
	var lease remediate.Lease
	if before != nil {
		p.levels, lease = slices.Clone(before.levels), before.lease
		p.lease = lease // until it is read again
	}
	defer func() { p.at = time.Now() }()
	if draft.Strategy == remediate.PowerCycle {
		if err := c.probePower(ctx, p); err != nil {
			p.hostError, p.hostDetail = hosts.ReasonOf(err), reason.Sentence(err)
			return p
		}
	}
	c.probeCluster(ctx, p, lease)
	return p
}

// probeCluster asks the cluster, past every cache; lease is what the last probe read.
func (c *cluster) probeCluster(ctx context.Context, p *probe, lease remediate.Lease) run.Fresh {
	fresh := c.opt.Kube.Look(ctx, p.draft, nil)
	p.lease = fresh.Observation.Lease
	p.powerOwner = fresh.Observation.PowerForbidden
	switch fresh.Observation.Contested {
	case remediate.Yes:
		p.contested = fresh.Observation.Contender
	case remediate.CannotTell:
		p.contested = "who else is at work cannot be read"
		if fresh.Err != nil {
			p.contested += ": " + fresh.Err.Error()
		}
	}
	p.nodeAlive = nodeAlive(fresh.Node, fresh.Observation.Lease, lease)
	p.controlPlane = p.draft.ControlPlane || fresh.Node != nil && fresh.Node.ControlPlane || fresh.Machine != nil && fresh.Machine.ControlPlane
	if p.controlPlane {
		p.quorum, p.quorumDetail = c.quorum(p.draft, fresh)
	}
	return fresh
}

// completed is the run that begins on a probe: its draft with host and address,
// and with the role that only the fresh objects show. // I12
func (c *cluster) completed(p *probe, check *policy.Check) remediate.Run {
	r := p.draft
	if p.controlPlane && !r.ControlPlane {
		r.ControlPlane, r.Isolation = true, c.controlPlaneIsolation(r.Target, check)
	}
	return r
}

// sameDraft says whether a run would still be made from what was probed.
func sameDraft(probed, now remediate.Run) bool {
	t := &probed.Target
	t.Host, t.Address, t.Devices, t.Choice, t.Secret = now.Target.Host, now.Target.Address, now.Target.Devices, now.Target.Choice, now.Target.Secret
	probed.Level, probed.Limits.Levels = now.Level, now.Limits.Levels
	return reflect.DeepEqual(probed, now)
}

// quorum says why etcd would not survive the loss of a control-plane host, by
// members read just now; "" when it would. An owner that is only told to replace
// its Machine guards its own quorum. // I12
func (c *cluster) quorum(r remediate.Run, f run.Fresh) (reason.Code, string) {
	if r.Strategy == remediate.DeleteMachine && marks(r.Target) {
		return "", "the Machine's owner keeps the quorum"
	}
	c.mu.Lock()
	size := c.ledger.ControlPlaneSize()
	c.mu.Unlock()
	code, detail := policy.Quorum(f.Members, r.Target.Node, size, c.opt.Rules)
	if !f.MembersKnown && code != reason.ControlPlane && !c.opt.Rules.ExternalEtcd {
		return reason.QuorumUnknown, "the etcd members cannot be read"
	}
	return code, detail
}

// marks says whether the Machine is handed over to its owner by condition instead
// of being deleted.
func marks(t remediate.Target) bool { return strings.HasPrefix(t.MachineAPI, clusterAPIGroup) }

const clusterAPIGroup = "cluster.x-k8s.io/"

// retryAt is when a refused probe is made again.
func (p *probe) retryAt() time.Time { return p.at.Add(power.ProbeRetry) }

// nodeAlive says whether a Node whose Ready is Unknown still has a moving
// Lease: moved since it was looked at before, whatever the host's clock says, or,
// at the first look, renewed after the condition turned. // I4
func nodeAlive(n *policy.Node, l, before remediate.Lease) bool {
	if n == nil || !l.Known || l.ResourceVersion == "" {
		return false
	}
	for _, c := range n.Conditions {
		if c.Type == "Ready" && c.Status == "Unknown" {
			if before.ResourceVersion != "" {
				return before.ResourceVersion != l.ResourceVersion
			}
			return l.RenewTime.After(c.LastTransition)
		}
	}
	return false
}

// dropProbe forgets a probe and ends its session.
func (c *cluster) dropProbe(key string) {
	c.mu.Lock()
	p := c.probes[key]
	delete(c.probes, key)
	c.mu.Unlock()
	if p != nil {
		c.endProbe(p)
	}
}

// endProbe ends the session of a probe that nobody can reach any more.
func (c *cluster) endProbe(p *probe) {
	if s := p.session; s != nil {
		p.session = nil
		if !c.lead.Spawn(s.Close) {
			s.Close(context.Background())
		}
	}
}
