package admit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/times"
)

// levelState holds the results of a target's probes at one power level.
type levelState struct {
	failed int   // failures in a row
	err    error // the last failure
}

// probePower finds the host and its first power level that answers, and compares identities
// there. If another machine answers, the run is refused, and no other level is tried.
func (ps *probes) probePower(ctx context.Context, p *probe) error {
	h, err := ps.opt.Hosts.FindNew(ctx, p.draft.Target)
	if err != nil {
		return err
	}
	t := &p.draft.Target
	ps.opt.Hosts.FixTarget(t, h)
	p.draft.Limits.Levels = len(h.Levels)
	if p.levels == nil && p.draft.Manual != nil && !p.onlyLooks { // the person may have corrected the password
		ps.opt.LockOut.Forget(h)
	}
	if len(p.levels) != len(h.Levels) {
		p.levels = make([]levelState, len(h.Levels))
	}
	p.identity = guard.IdentityFact{Mode: h.IdentityMode, Node: t.SystemUUID}
	for i := range h.Levels {
		l := &p.levels[i]
		if err := ps.opt.LockOut.BackingOff(h.Levels[i]); err != nil {
			l.err = err
			continue
		}
		r, s, err := power.OpenAndRead(ctx, ps.opt.Open, h, i, ps.opt.Timing)
		if ctx.Err() == nil { // otherwise the attempt was cancelled and says nothing
			ps.opt.LockOut.Probed(h.Levels[i], err)
		}
		if err == nil {
			*l = levelState{}
			p.draft.Level, p.session = i, s
			p.identity.BMC = r.Identity.UUID
			found := ps.opt.Hosts.IdentifyNew(ctx, h, i, r, *t, p.draft.Manual != nil)
			p.identity.Verdict, p.identity.Why = found.Verdict, found.Why
			t.ByHardware, t.ReportedUUID = found.ByHardware, found.ReportedUUID
			return nil
		}
		l.failed, l.err = l.failed+1, err
		if !bmc.KindOf(err).RefusesAccount() && l.failed < power.FailedTwice {
			return err
		}
	}
	return p.levels[0].err
}

// hasUntriedLevel says whether another probe could go past a level that has failed only once
// and reach a level that was not tried.
func (p *probe) hasUntriedLevel() bool {
	if p.hostError == "" || len(p.levels) < 2 {
		return false
	}
	return slices.ContainsFunc(p.levels, func(l levelState) bool { return l.failed == 0 })
}

// addLastChecks adds to a target that was not probed what fenced knows of the BMC of its host: the
// accounts that were refused, and the results of the BMC health check. A run reads the BMC itself;
// this is for people only, so that explain and bmc list say the same.
func (ps *probes) addLastChecks(p *probe, h bmc.Host) {
	var last []hosts.LastCheck
	if ps.opt.LastChecks != nil {
		last = ps.opt.LastChecks(ps.opt.Name, h.Name)
	}
	for i, level := range h.Levels {
		code, why := ps.levelProblem(level, i, last)
		if code == "" { // the level that a probe would use
			p.hostError, p.hostDetail = "", ""
			p.addIdentity(level, i, last)
			return
		}
		if p.hostError == "" {
			p.hostError, p.hostDetail = code, why
		}
	}
}

// levelProblem returns why a probe would go past a level of a host; "" if it would use it, or if
// nobody knows.
func (ps *probes) levelProblem(level bmc.Level, i int, last []hosts.LastCheck) (reason.Code, string) {
	if err := ps.opt.LockOut.BackingOff(level); err != nil {
		return hosts.ReasonOf(err), reason.Sentence(err)
	}
	for _, c := range last {
		if c.Level == i && c.Reason != "" {
			return c.Reason, c.Problem + " (BMC health check at " + c.At.UTC().Format(time.RFC3339) + ")"
		}
	}
	return "", ""
}

// addIdentity adds what the devices of a level reported last. Of a Machine without a Node, the
// health check has nothing to compare with.
func (p *probe) addIdentity(level bmc.Level, i int, last []hosts.LastCheck) {
	last = slices.DeleteFunc(last, func(c hosts.LastCheck) bool { return c.Level != i || c.At.IsZero() })
	if len(last) < len(level.Devices) {
		return // not checked yet
	}
	p.hostUnread = false
	p.hostDetail = "read " + last[0].Power.String() + " by the BMC health check at " + last[0].At.UTC().Format(time.RFC3339)
	if p.draft.Target.Node == "" {
		return
	}
	for _, c := range last {
		if p.identity.Verdict == "" || p.identity.Verdict == guard.IdentityMatches {
			p.identity.Verdict, p.identity.BMC = c.Identity, c.UUID
		}
	}
}

// readsOnSince says whether the BMC health check has read every device of a host On since then: nobody knows which
// of them was switched off. // I20
func (ps *probes) readsOnSince(ctx context.Context, t remediate.Target, since time.Time) bool {
	if ps.opt.LastChecks == nil {
		return false
	}
	h, err := ps.opt.Hosts.FindBare(ctx, t)
	if err != nil {
		return false
	}
	type place struct{ level, device int }
	devices, on := 0, map[place]bool{}
	for _, l := range h.Levels {
		devices += len(l.Devices)
	}
	for _, last := range ps.opt.LastChecks(ps.opt.Name, h.Name) { // a device is listed twice while a host changes its Node
		if !last.Asked().After(since) {
			continue
		}
		if last.Reason != "" || last.Power != bmc.On || last.Identity == guard.IdentityDiffers {
			return false
		}
		on[place{last.Level, last.Device}] = true
	}
	return devices > 0 && len(on) == devices
}

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
		if err := ps.looks.Acquire(ctx, 1); err != nil {
			p.contested = "cannot read whether another controller acts on the target: " + err.Error() // nothing was read
			return p
		}
		defer ps.looks.Release(1)
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
	p.replaced = remediate.TargetReplaced(p.draft, fresh.Observation)
	unread := "" // else the record could not tell that a kubeconfig leads to another cluster // I27
	switch t := &p.draft.Target; {
	case t.ClusterUID == "":
		unread = "cluster"
	case t.ManagementUID == "" && ps.opt.Model.Options.Rules.ManagementApart:
		unread = "management cluster"
	}
	if unread != "" {
		p.replaced = "cannot read which " + unread + " answers"
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
	p.nodeAlive, p.leaseTooLong = now.Before(policy.RenewedUntil(fresh.Node, lease, now)), times.LeaseTooLong(fresh.Observation.Lease.Duration)
	p.controlPlane = p.draft.ControlPlane || fresh.Node != nil && fresh.Node.ControlPlane || fresh.Machine != nil && fresh.Machine.ControlPlane
	if p.controlPlane {
		p.takesTurn = ps.opt.Model.Objects.TakesTurn(fresh.Node, fresh.Machine)
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
	code, detail := ps.opt.Model.Objects.Quorum(f.Members, r.Target.Node)
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
