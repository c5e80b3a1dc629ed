package admit

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// probe is the first look at a target: BMC first, then the cluster, so that
// the Lease is younger than the power reading. before is what the last probe
// found; nil for the first.
func (ps *probes) probe(ctx context.Context, draft remediate.Run, before *probe) *probe {
	p := &probe{draft: draft}
	var lease remediate.Lease
	if before != nil {
		p.levels, lease = slices.Clone(before.levels), before.lease
		p.lease = lease // until it is read again
	}
	defer func() { p.at = time.Now() }()
	if draft.Strategy == remediate.PowerCycle {
		if err := ps.probePower(ctx, p); err != nil {
			p.hostError, p.hostDetail = hosts.ReasonOf(err), reason.Sentence(err)
			return p
		}
	}
	ps.probeCluster(ctx, p, lease)
	return p
}

// probeCluster asks the cluster, past every cache; lease is what the last probe read.
func (ps *probes) probeCluster(ctx context.Context, p *probe, lease remediate.Lease) run.Fresh {
	fresh := ps.opt.Kube.Look(ctx, p.draft, nil)
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
		p.quorum, p.quorumDetail = ps.quorum(p.draft, fresh)
	}
	return fresh
}

// quorum says why etcd would not survive the loss of a control-plane host, by
// members read just now; "" when it would. An owner that is only told to replace
// its Machine guards its own quorum. // I12
func (ps *probes) quorum(r remediate.Run, f run.Fresh) (reason.Code, string) {
	if r.Strategy == remediate.DeleteMachine && marks(r.Target) {
		return "", "the Machine's owner keeps the quorum"
	}
	rules := ps.opt.Book.opt.Rules
	code, detail := policy.Quorum(f.Members, r.Target.Node, ps.opt.Book.controlPlaneSize(), rules)
	if !f.MembersKnown && code != reason.ControlPlane && !rules.ExternalEtcd {
		return reason.QuorumUnknown, "the etcd members cannot be read"
	}
	return code, detail
}

// marks says whether the Machine is handed over to its owner by condition instead
// of being deleted.
func marks(t remediate.Target) bool { return strings.HasPrefix(t.MachineAPI, clusterAPIGroup) }

const clusterAPIGroup = "cluster.x-k8s.io/"

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

// unprobed is what can be said about a target without asking its BMC: whether
// there is one, whether its credentials can be had, and how etcd stands.
func (ps *probes) unprobed(ctx context.Context, draft remediate.Run) *probe {
	p := &probe{draft: draft}
	if draft.ControlPlane {
		p.quorum, p.quorumDetail = ps.quorum(draft, ps.opt.Kube.Look(ctx, draft, nil))
	}
	if draft.Strategy != remediate.PowerCycle {
		return p
	}
	h, err := ps.opt.Hosts.FindNew(ctx, draft.Target)
	if err != nil {
		p.hostError, p.hostDetail = hosts.ReasonOf(err), reason.Sentence(err)
		return p
	}
	p.draft.Target.Host = h.Name
	p.identity = guard.IdentityFact{Mode: h.IdentityMode, Node: draft.Target.SystemUUID}
	return p
}

// lookForRivals asks the cluster, past every cache, who else is at work on a run's
// target. Whom nobody can tell of the run asks for itself.
func (ps *probes) lookForRivals(ctx context.Context, r remediate.Run) *probe {
	ctx, cancel := context.WithTimeout(ctx, run.LookTimeout)
	defer cancel()
	p := &probe{draft: r}
	if f := ps.probeCluster(ctx, p, remediate.Lease{}); f.Observation.Contested != remediate.Yes {
		p.contested = ""
	}
	return p
}
