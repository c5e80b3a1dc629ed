package admit

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/wire"
)

// Fence starts a run on one Node or Machine. It skips the limit of the check, the waits and the rates,
// and no other gate. A refusal is a *reason.Refusal.
func (c *Cluster) Fence(ctx context.Context, o wire.Order) (order.Outcome, error) {
	a, err := c.model.CandidateForOrder(o)
	if err != nil {
		return order.Outcome{}, err
	}
	for _, r := range c.model.Runs.Open() {
		if cluster.IsOn(&r, o.Of()) && r.OffOnly == o.OffOnly && !r.Step.Idle() && r.Strategy == remediate.PowerCycle {
			if !o.DryRun {
				joins := o.Event("fences, which run " + r.ID + " already does")
				joins.Run = r.ID
				c.emit(joins)
			}
			return order.Outcome{Run: r.ID, Joined: true}, nil
		}
	}
	if o.DryRun {
		return c.ByHand.dryRun(ctx, o, a)
	}
	defer c.ByHand.takeLease(ctx, a)()
	now := time.Now()
	gates := append(uncertainMachineGates(a), c.gates(a, nil, now)...)
	if g, refused := cluster.FirstFailing(gates); refused {
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	}
	p := c.probes.probeForOrder(ctx, a.Draft, nil)
	now = time.Now()
	if again, err := c.model.CandidateForOrder(o); err == nil { // the cluster may have changed during the probe
		a.Doubt, a.MissingHost = again.Doubt, again.MissingHost
	}
	gates = append(uncertainMachineGates(a), c.gates(a, p, now)...)
	if g, refused := cluster.FirstFailing(gates); refused {
		if p.session != nil {
			p.session.Close(ctx)
		}
		return order.Outcome{Gates: gates}, reason.RefusalOf(g)
	}
	a.Gates = gates
	c.emit(o.Event("fences"))
	r, err := c.start(ctx, a, p.complete(c.model.Options.Draft, nil), p.session)
	if err != nil && p.session != nil {
		p.session.Close(ctx)
	}
	return order.Outcome{Run: r.ID, Gates: gates}, err
}

// uncertainMachineGates returns a failing gate if it is uncertain which Machine the Node
// belongs to: that Machine may forbid remediation, and may not be in the view. The gate's
// name "claim" is stable: it is shown in JSON.
func uncertainMachineGates(a cluster.Candidate) []reason.Gate {
	if a.Doubt == (policy.Doubt{}) {
		return nil
	}
	return []reason.Gate{{Name: "claim", Reason: a.Doubt.Reason, Value: a.Doubt.Message, Threshold: "a Machine of its own, or none", Source: "watch"}}
}

// Order passes an order to the worker of a run, and returns when it is durable.
func (c *Cluster) Order(ctx context.Context, id string, o wire.Order, verb string, change func(remediate.Run) (remediate.Run, error)) (order.Outcome, error) {
	r, _ := c.model.Runs.Get(id)
	o.Node, o.Machine, o.Run = r.Target.Node, r.Target.WithoutNode(), id
	known, err := c.Runner.Order(ctx, id, change, o.Event(verb))
	switch {
	case !known:
		return order.Outcome{}, cmp.Or(c.opt.Lead.Refuse(), run.ErrEnded(id))
	case err != nil:
		return order.Outcome{}, err
	}
	return order.Outcome{Run: id}, nil
}

// Retry continues a run that is Waiting or Held, or that rests before its next attempt. It refuses the order if
// a gate would keep the run where it is: otherwise the run would drop the order silently.
func (c *Cluster) Retry(ctx context.Context, o wire.Order, r remediate.Run) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil {
		return order.Outcome{}, err
	}
	p := c.probes.lookForContenders(ctx, r)
	return c.Order(ctx, r.ID, o, "retries", func(r remediate.Run) (remediate.Run, error) {
		if may, why := remediate.CanRetry(r); !may {
			return r, &reason.Refusal{Reason: reason.OrderRefused, Message: why}
		}
		now := time.Now()
		if g, refused := cluster.FirstFailing(retryGates(c.gates(cluster.Candidate{Draft: r}, p, now), remediate.RetryCutsPower(r))); refused {
			return r, reason.RefusalOf(g)
		}
		if why := c.runs.whyNotAsked(r, p, now); why != "" {
			return r, &reason.Refusal{Reason: reason.Withdrawn, Message: "another power cycle was not ordered: " + why + "; to fence the host all the same, run fencectl abort, then fencectl fence"}
		}
		r.Retry = o.ForRecord()
		return r, nil
	})
}

// retryGates selects the gates that prevent a run from continuing. A file that was not read may protect
// the host, or limit how many may be off: that forbids another power cycle, and not to bring the host back. // I5, I18, I22, I23
func retryGates(gates []reason.Gate, cutsPower bool) []reason.Gate {
	return slices.DeleteFunc(gates, func(g reason.Gate) bool {
		switch g.Name {
		case "owner", "pause", "hold", "frozen", "target", "contested", "powerOwner", "nodeLease":
			return false
		case "files", "hostEntry":
			return !cutsPower
		}
		return true
	})
}

// whyNotAsked says why nobody asks any more for a run that a retry would let power-cycle its host: it
// would rest again at once. "": somebody does, or the retry only brings the host back. // I4
func (rc *runCluster) whyNotAsked(r remediate.Run, p *probe, now time.Time) string {
	if r.Manual != nil { // the retry renews the order
		renewed := *r.Manual
		renewed.At, r.Manual = now, &renewed
	}
	if withdrawn, why := rc.Withdrawn(r, p.look.Fresh, now); withdrawn == remediate.Yes && remediate.RetryCutsPower(r) {
		return why
	}
	return ""
}

const (
	// maxDryRuns bounds the dry runs of operators that ask BMCs of a cluster at the same time.
	maxDryRuns = 4
	// maxViewerDryRuns is the same of everybody who may only look. They have places of their own: no
	// operator waits for them.
	maxViewerDryRuns = 2
	// leaseWait is how long an order by hand waits until it is known who else acts on the cluster.
	leaseWait  = 5 * time.Second
	leaseCheck = 50 * time.Millisecond
)

// ByHand is what a cluster does for people who fence by hand, beside the run itself: dry runs, and
// the cluster's Lease in mode observe.
type ByHand struct {
	c             *Cluster
	dryRuns       *semaphore.Weighted
	viewerDryRuns *semaphore.Weighted
	orders        atomic.Int32 // of administrators in mode observe, that are being carried out
}

// Acts says whether an administrator's order is being carried out in mode observe. Meanwhile this
// instance must hold the cluster's Lease, as if it was armed. // I22
func (h *ByHand) Acts() bool { return h.orders.Load() > 0 }

// takeLease makes this instance take the cluster's Lease for an administrator's order in mode
// observe, in which nothing else takes it, and waits until nobody else acts there. If somebody
// does, or if that is not known, the gate "owner" refuses the order. The caller calls done when
// the order is carried out: then the open run keeps the Lease. // I22
func (h *ByHand) takeLease(ctx context.Context, a cluster.Candidate) (done func()) {
	c := h.c
	if c.opt.Mode != guard.ModeObserve || a.Draft.Manual == nil || !a.Draft.Manual.Admin || c.opt.Lead.WhyNot() != "" {
		return func() {}
	}
	h.orders.Add(1)
	c.opt.Lead.TakeLeaseSoon()
	for end := time.Now().Add(leaseWait); time.Now().Before(end); {
		if other, _ := c.opt.Lead.Contested(time.Now()); other == remediate.No {
			break
		}
		select {
		case <-ctx.Done():
			return func() { h.orders.Add(-1) }
		case <-time.After(leaseCheck):
		}
	}
	return func() { h.orders.Add(-1) }
}

// dryRun asks every gate about an order to fence, and the BMC, also after a gate has failed, and
// begins nothing. A refusal comes beside what was found.
func (h *ByHand) dryRun(ctx context.Context, o wire.Order, a cluster.Candidate) (order.Outcome, error) {
	c := h.c
	places := h.dryRuns
	if o.ByViewer() {
		places = h.viewerDryRuns
	}
	if err := places.Acquire(ctx, 1); err != nil {
		return order.Outcome{}, err
	}
	defer places.Release(1)
	gates := append(uncertainMachineGates(a), c.gates(a, nil, time.Now())...)
	var p *probe
	if !slices.ContainsFunc(gates, forbidsToAsk) {
		p = c.probes.probeForOrder(ctx, a.Draft, &probe{onlyLooks: o.ByViewer()})
		if p.hostError != "" { // the gates about the cluster are asked all the same
			c.probes.probeCluster(ctx, p)
		}
		if p.session != nil {
			p.session.Close(ctx)
		}
		gates = append(uncertainMachineGates(a), c.gates(a, p, time.Now())...)
	}
	out := order.Outcome{Gates: gates, Target: h.target(ctx, a, p)}
	if g, refused := cluster.FirstFailing(gates); refused {
		return out, reason.RefusalOf(g)
	}
	return out, nil
}

// forbidsToAsk says whether a failed gate means that somebody else has a session with the BMC.
func forbidsToAsk(g reason.Gate) bool {
	return !g.Pass && (g.Reason == reason.NotOwner || g.Reason == reason.UnderRemediation)
}

// target describes the target of an order to the person who gives it. p is its probe; nil:
// no BMC was asked.
func (h *ByHand) target(ctx context.Context, a cluster.Candidate, p *probe) *wire.OrderTarget {
	of := a.Draft.Target
	node := a.Node
	t := &wire.OrderTarget{Cluster: h.c.opt.Name, Node: of.Node, Machine: of.MachineKey()}
	if p != nil {
		of = p.draft.Target
		t.BMC = of.Address
		if p.look.Fresh.Node != nil {
			node = p.look.Fresh.Node
		}
		if p.hostError == "" {
			t.Identity, t.UUID = string(p.identity.Verdict), p.identity.BMC
		}
	}
	if node == nil {
		return t
	}
	for cond := range node.Conditions.All() {
		if cond.Type == "Ready" {
			t.Ready, t.ReadySince = cond.Status, cond.LastTransition
		}
	}
	if list := h.c.opt.Pods; list != nil {
		pods, err := list(ctx, node.Name)
		if err != nil {
			t.PodsProblem = err.Error()
		} else {
			t.Pods = &pods
		}
	}
	return t
}

// ConfirmOff accepts a manual confirmation, in place of a proof, that a Node's host is off
// and cannot come on: for the Held run on that Node, or for a new run. All gates must pass
// except those about the BMC. A dry run returns the evidence and the gates, and refuses
// nothing. // I26
func (c *Cluster) ConfirmOff(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil { // a standby reads no BMC
		return order.Outcome{}, err
	}
	confirmed := o.ForRecord() // what reads On from now on contradicts it, also while the evidence is gathered
	open, held := c.model.Runs.OpenOn(o.Node)
	a, err := c.model.CandidateForOrder(o)
	switch {
	case held:
		if may, why := remediate.CanConfirm(open); !may {
			return order.Outcome{}, &reason.Refusal{Reason: reason.OrderRefused, Message: "run " + open.ID + ": " + why}
		}
		a.Draft = open
		a.Draft.Manual = o.ForRecord() // the gates for orders apply, whoever started the run
		a.Draft.Manual.Admin = o.ByAdmin()
	case err != nil:
		return order.Outcome{}, err
	default: // in mode observe a confirmation begins no run: a fence asks the BMC first
		a.Draft.Manual.Admin = false
	}
	p, evidence, against := c.probes.gatherEvidence(ctx, a.Draft)
	out := order.Outcome{Run: open.ID, Evidence: evidence, Gates: append(uncertainMachineGates(a), confirmationGates(c.gates(a, p, time.Now()), p, against, held)...)}
	g, refused := cluster.FirstFailing(out.Gates)
	switch {
	case o.DryRun:
		return out, nil
	case refused:
		return out, reason.RefusalOf(g)
	case held:
		done, err := c.Order(ctx, open.ID, o, "confirms that the host is off", func(r remediate.Run) (remediate.Run, error) {
			if may, why := remediate.CanConfirm(r); !may {
				return r, &reason.Refusal{Reason: reason.OrderRefused, Message: why}
			}
			r.Confirmed = confirmed
			return r, nil
		})
		out.Run = done.Run
		return out, err
	}
	draft := p.complete(c.model.Options.Draft, nil)
	draft.Confirmed = confirmed
	draft.Trigger = "confirmed off by " + o.Actor + ": " + o.Reason
	a.Gates = out.Gates
	c.emit(o.Event("confirms that the host is off"))
	r, err := c.start(ctx, a, draft, nil)
	out.Run = r.ID
	return out, err
}

// confirmationGates are all of the gates except those that a manual confirmation replaces, and one
// for evidence against the confirmation. The gate "host" stays if the host has a BMC to which no
// password may be sent: that BMC could contradict the confirmation, once hosts.d or an enrolment
// allows fenced to read it. // I26
func confirmationGates(gates []reason.Gate, p *probe, against string, held bool) []reason.Gate {
	confirmation := reason.Gate{Name: "confirmation", Pass: against == "", Value: against, Threshold: "none", Source: "BMCs and Node"}
	if !confirmation.Pass {
		confirmation.Reason = reason.ConfirmedOffContradicted
	} else {
		confirmation.Value = "nothing contradicts the confirmation"
	}
	gates = slices.DeleteFunc(gates, func(g reason.Gate) bool {
		return g.Name == "host" && !p.passwordWithheld || g.Name == "identity" || held && g.Name == "openRun"
	})
	return append([]reason.Gate{confirmation}, gates...)
}

// gatherEvidence reads every power level, and then the cluster, about a host that a person
// reports as off. against is the evidence that contradicts the report, "" for none.
func (ps *probes) gatherEvidence(ctx context.Context, draft remediate.Run) (p *probe, evidence []string, against string) {
	p = &probe{draft: draft}
	evidence, against = ps.readAllLevels(ctx, p)
	fresh := ps.probeCluster(ctx, p)
	p.at = time.Now()
	more, aliveBecause := describeNode(fresh, p.at)
	if p.nodeAlive && aliveBecause == "" {
		aliveBecause = "the Node's Lease was renewed after its Ready turned Unknown"
	}
	if against == "" {
		against = aliveBecause
	}
	return p, append(evidence, more...), against
}

// readAllLevels reads every power level once.
func (ps *probes) readAllLevels(ctx context.Context, p *probe) (evidence []string, against string) {
	h, err := ps.opt.Hosts.Find(ctx, p.draft.Target)
	if err != nil {
		if r, ok := reason.AsRefusal(err); ok && p.draft.Target.Address == "" {
			_, bareErr := ps.opt.Hosts.FindBare(ctx, p.draft.Target)
			p.hostError, p.hostDetail, p.passwordWithheld = r.Reason, r.Message, bareErr == nil
		}
		return []string{"power: no BMC can be read: " + reason.Sentence(err)}, ""
	}
	ps.opt.Hosts.FixTarget(&p.draft.Target, h)
	p.draft.Limits.Levels = len(h.Levels)
	for i := range h.Levels {
		name := power.LevelText(h, i)
		r, s, err := power.OpenAndRead(ctx, ps.opt.Open, h, i, ps.opt.Timing)
		if err != nil {
			evidence = append(evidence, "power: "+name+" cannot be read: "+reason.Sentence(err))
			if len(h.Levels[i].Devices) == 1 && !bmc.KindOf(err).RefusesAccount() { // who may not switch may still read
				continue
			}
			if on := power.OnAmong(ctx, ps.opt.Open, h, i, ps.opt.Timing); on != "" {
				evidence, against = append(evidence, "power: "+on+" reads On"), cmp.Or(against, on+" reads On")
			}
			continue
		}
		s.Close(ctx)
		evidence = append(evidence, "power: "+name+" reads "+r.State.String())
		if (r.State == bmc.On || r.Partial || r.Contradicted) && against == "" {
			against = name + " reads On"
		}
	}
	return evidence, against
}

// describeNode is what uncached reads of the cluster say about the host.
func describeNode(f run.Fresh, now time.Time) (evidence []string, against string) {
	switch n := f.Observation.Node; {
	case n.Exists == remediate.CannotTell:
		evidence = append(evidence, "node: it cannot be read")
	case n.Exists == remediate.No:
		evidence = append(evidence, "node: it does not exist")
	case n.Ready == remediate.Yes:
		evidence, against = append(evidence, "node: Ready"), "the Node is Ready"
	default:
		evidence = append(evidence, "node: not Ready"+notReadyFor(f.Node, now))
	}
	switch l := f.Observation.Lease; {
	case !l.Known:
		evidence = append(evidence, "lease: it cannot be read")
	case l.ResourceVersion == "":
		evidence = append(evidence, "lease: it does not exist")
	default:
		evidence = append(evidence, "lease: "+renewedText(now.Sub(l.RenewTime))+", by the Node's clock")
	}
	return evidence, against
}

// renewedText is how long ago a Lease says that it was renewed. Its time may be any.
func renewedText(ago time.Duration) string {
	if ago < 0 {
		return "renewed at a time that is still to come"
	}
	return "renewed " + ago.Round(time.Second).String() + " ago"
}

// notReadyFor is the status of a Node's Ready condition and how long it has had it, as text
// in parentheses; "" when unknown.
func notReadyFor(n *policy.Node, now time.Time) string {
	if n == nil {
		return ""
	}
	ready, _ := n.Condition("Ready")
	if ready.LastTransition.IsZero() {
		return ""
	}
	return " (" + ready.Status + ") for " + now.Sub(ready.LastTransition).Round(time.Second).String()
}
