package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// probe is what was found out about a candidate before a run is begun: its
// host, whose BMC answers, and who else is at work. A run that starts on it
// takes over its BMC session.
type probe struct {
	running bool
	at      time.Time
	draft   remediate.Run
	session *session

	hostError  policy.Reason
	hostDetail string
	identity   policy.IdentityFact
	contested  string
	powerOwner string
	nodeAlive  bool
	lease      remediate.Lease
}

// runProbe fills the probe of a candidate and asks for a decision.
func (c *cluster) runProbe(ctx context.Context, a applicant) {
	c.mu.Lock()
	var before remediate.Lease
	if p := c.probes[a.key]; p != nil {
		before = p.lease
	}
	c.mu.Unlock()
	p := c.look1(ctx, a.draft, before)
	c.mu.Lock()
	c.probes[a.key] = p
	c.mu.Unlock()
	c.wake()
}

// look1 is the first look at a target: BMC first, then the cluster, so that
// the Lease is younger than the power reading.
func (c *cluster) look1(ctx context.Context, draft remediate.Run, before remediate.Lease) *probe {
	p := &probe{draft: draft}
	defer func() { p.at = time.Now() }()
	h, err := c.host(ctx, draft.Target)
	if err != nil {
		p.refuseHost(err)
		return p
	}
	p.draft.Target.Host, p.draft.Target.Address = h.Name, h.Endpoint.String()
	pw, err := c.e.opt.Open(h)
	if err != nil {
		p.refuseHost(err)
		return p
	}
	p.session = newSession(h, pw, c.e.opt.Power)
	r, err := p.session.read(ctx)
	if err != nil {
		p.refuseHost(err)
		return p
	}
	p.identity = policy.IdentityFact{Mode: h.IdentityMode, BMC: r.Identity.UUID, Node: draft.Target.SystemUUID,
		Verdict: verdict(identify(h, r.Identity, draft.Target.SystemUUID, c.pin(ctx, h), draft.Manual != nil))}

	fresh := c.opt.Kube.Look(ctx, draft, nil)
	p.lease = fresh.Seen.Lease
	p.powerOwner = fresh.Seen.PowerForbidden
	switch fresh.Seen.Contested {
	case remediate.Yes:
		p.contested = fresh.Seen.Contender
	case remediate.CannotTell:
		p.contested = "who else is at work cannot be read"
		if fresh.Err != nil {
			p.contested += ": " + fresh.Err.Error()
		}
	}
	p.nodeAlive = nodeAlive(fresh.Node, fresh.Seen.Lease, before)
	return p
}

// nodeAlive says whether a Node whose Ready is Unknown still has a moving
// Lease: renewed after the condition turned, and, if it was looked at before,
// moved since. // I4
func nodeAlive(n *policy.Node, l, before remediate.Lease) bool {
	if n == nil || !l.Known || l.ResourceVersion == "" {
		return false
	}
	for _, c := range n.Conditions {
		if c.Type == "Ready" && c.Status == "Unknown" {
			moved := before.ResourceVersion == "" || before.ResourceVersion != l.ResourceVersion
			return moved && l.RenewTime.After(c.LastTransition)
		}
	}
	return false
}

func (p *probe) refuseHost(err error) {
	p.hostError, p.hostDetail = hostReason(err), err.Error()
}

func verdict(a remediate.Answer) policy.IdentityVerdict {
	switch a {
	case remediate.Yes:
		return policy.IdentityMatches
	case remediate.No:
		return policy.IdentityDiffers
	}
	return policy.IdentityUnproven
}

// dropProbe forgets a probe and ends its session.
func (c *cluster) dropProbe(key string) {
	c.mu.Lock()
	p := c.probes[key]
	delete(c.probes, key)
	c.mu.Unlock()
	if p != nil && p.session != nil {
		s := p.session
		p.session = nil
		c.spawn(s.close)
	}
}

// reasonOf turns a BMC's error into a reason code.
func hostReason(err error) policy.Reason {
	if r, ok := asRefusal(err); ok {
		return r.Reason
	}
	return policy.Reason("BMC" + string(bmc.KindOf(err)))
}
