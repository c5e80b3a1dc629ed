package admit

import (
	"cmp"
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

// probe reads a target before its run starts: first the BMC, then the cluster, so that the
// Lease is read after the power state. before is the last probe; nil for the first.
func (ps *probes) probe(ctx context.Context, draft remediate.Run, before *probe) *probe {
	p := &probe{draft: draft, hostUnread: draft.Strategy == remediate.PowerCycle, clusterUnread: true}
	if before != nil {
		p.levels, p.onlyLooks = slices.Clone(before.levels), before.onlyLooks
	}
	defer func() { p.at = time.Now() }()
	if draft.Strategy == remediate.PowerCycle {
		if err := ps.probePower(ctx, p); err != nil {
			p.hostError, p.hostDetail = hosts.ReasonOf(err), reason.Sentence(err)
			return p
		}
		p.hostUnread = false
	}
	if draft.Manual == nil { // an order goes before
		if err := ps.looks.enter(ctx); err != nil {
			p.contested = "cannot read whether another controller acts on the target: " + err.Error() // nothing was read
			return p
		}
		defer ps.looks.leave()
	}
	ps.probeCluster(ctx, p)
	return p
}

// probeForOrder probes every power level of a target in turn: an order does not wait for the next
// probe. before is the last probe; nil for the first.
func (ps *probes) probeForOrder(ctx context.Context, draft remediate.Run, before *probe) *probe {
	p := ps.probe(ctx, draft, before)
	for range p.levels {
		if p.hasUntriedLevel() {
			p = ps.probe(ctx, draft, p)
		}
	}
	return p
}

// probeCluster reads the cluster without any cache.
func (ps *probes) probeCluster(ctx context.Context, p *probe) run.Fresh {
	at := time.Now()
	fresh := ps.opt.Kube.Look(ctx, p.draft, nil)
	p.look, p.clusterUnread = run.Admitted{Fresh: fresh, At: at}, false
	p.powerOwner = fresh.Observation.PowerForbidden
	fresh.Observation.MachineMetal = ps.opt.Hosts.BareMetalHostOf(fresh.Machine)
	p.draft.Target.ClusterUID = cmp.Or(p.draft.Target.ClusterUID, fresh.Observation.ClusterUID)
	p.draft.Target.ManagementUID = cmp.Or(p.draft.Target.ManagementUID, fresh.Observation.ManagementUID)
	if p.replaced = remediate.TargetReplaced(p.draft, fresh.Observation); p.draft.Target.ClusterUID == "" {
		p.replaced = "cannot read which cluster answers"
		if fresh.Err != nil {
			p.replaced += ": " + fresh.Err.Error()
		}
	}
	switch fresh.Observation.Contested {
	case remediate.Yes:
		p.contested = fresh.Observation.Contender
	case remediate.CannotTell:
		p.contested = "cannot read whether another controller acts on the target"
		if fresh.Err != nil {
			p.contested += ": " + fresh.Err.Error()
		}
	}
	now := time.Now()
	lease := ps.leases.note(p.draft.Target.Node, fresh.Observation.Lease, at, now)
	p.nodeAlive, p.leaseTooLong = now.Before(policy.RenewedUntil(fresh.Node, lease, now)), fresh.Observation.Lease.TooLong()
	p.controlPlane = p.draft.ControlPlane || fresh.Node != nil && fresh.Node.ControlPlane || fresh.Machine != nil && fresh.Machine.ControlPlane
	if p.controlPlane {
		p.takesTurn = ps.opt.Model.Objects().TakesTurn(fresh.Node, fresh.Machine)
		p.quorum, p.quorumDetail = ps.quorum(p.draft, fresh)
	}
	return fresh
}

// quorum says why etcd would lose its quorum without this control-plane host, by members
// that were just read; "" if it would not. If fenced only marks the Machine, its owner
// protects the quorum. // I12
func (ps *probes) quorum(r remediate.Run, f run.Fresh) (reason.Code, string) {
	if r.Strategy == remediate.DeleteMachine && replacedByOwner(r.Target) {
		return "", "the Machine's owner keeps the quorum"
	}
	code, detail := ps.opt.Model.Objects().Quorum(f.Members, r.Target.Node)
	if !f.MembersKnown && code != reason.ControlPlane && !ps.opt.Model.Options.Rules.ExternalEtcd {
		return reason.QuorumUnknown, "the etcd members cannot be read"
	}
	return code, detail
}

// replacedByOwner says whether fenced marks the Machine for its owner with a condition, and
// does not delete it.
func replacedByOwner(t remediate.Target) bool {
	return strings.HasPrefix(t.MachineAPI, clusterAPIGroup)
}

const clusterAPIGroup = "cluster.x-k8s.io/"

// unprobed returns what is known about a target without reading its BMC: whether it has a
// host, whether its credentials can be read, what the BMC health check found, and whether etcd
// keeps its quorum.
func (ps *probes) unprobed(ctx context.Context, draft remediate.Run) *probe {
	p := &probe{draft: draft, hostUnread: true, clusterUnread: true}
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
	ps.addLastChecks(p, h)
	return p
}

// lookForContenders reads, without any cache, whether another controller acts on a run's
// target. An answer that cannot be read is no refusal here: the run asks again by itself.
func (ps *probes) lookForContenders(ctx context.Context, r remediate.Run) *probe {
	ctx, cancel := context.WithTimeout(ctx, run.LookTimeout)
	defer cancel()
	p := &probe{draft: r}
	if f := ps.probeCluster(ctx, p); f.Observation.Contested != remediate.Yes {
		p.contested = ""
	}
	return p
}
