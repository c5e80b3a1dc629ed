package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	beatEvery  = time.Second
	probeFresh = 2 * time.Second // age of the probe a run starts on // I4
	askEvery   = 5 * time.Second // between two looks at a gate that does not say when it could hold
)

// decideLoop is the one deciding goroutine of a cluster. It runs when the view
// changed, when something else changed, and at the earliest deadline: never on
// a fixed rhythm.
func (c *cluster) decideLoop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	var due time.Time // of the candidates, when they were last asked about
	for {
		ask := true
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			c.e.beat()
			c.watchView()
			c.lead.SettleSlots()
			c.lead.ReportOwnerless()
			continue
		case <-timer.C:
		case <-c.opt.Watch.Changed():
			ask = false // unless it moved something
		case <-c.poke:
		}
		var next time.Time
		next, due = c.decide(ctx, time.Now(), ask, due)
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(time.Millisecond, time.Until(next)))
		}
	}
}

// watchView says how good the view is. It notes when that turns bad or good, and starts
// the quiet period after an outage. // I16
func (c *cluster) watchView() View {
	v := c.view()
	bad := v.Problem
	switch {
	case !v.Synced:
		bad = joined("not synced yet", v.Problem)
	case v.Age > c.e.opt.Guards.ViewMaxAge:
		bad = joined("the view is "+v.Age.Round(time.Second).String()+" old", v.Problem)
	default:
		bad = cmp.Or(c.skewed(v), bad)
	}
	c.mu.Lock()
	changed := (bad == "") != (c.viewBad == "")
	c.viewBad = bad
	if v.Since.After(c.outage) {
		c.outage = v.Since
		c.quiet = later(c.quiet, v.Since.Add(c.e.opt.Guards.QuietPeriod))
		changed = true
	}
	c.mu.Unlock()
	if changed {
		c.emit(event.Event{Type: event.ViewChanged, Message: bad})
		c.wake()
	}
	return v
}

// joined adds what is known about a problem to it.
func joined(text, more string) string {
	if more == "" {
		return text
	}
	return text + "; " + more
}

// decide takes what changed into the ledger and, when that may matter or it is
// asked to, moves every candidate one step nearer to a run. due is when the
// candidates are to be asked about again, and next when time alone could change
// something; zero = never.
func (c *cluster) decide(ctx context.Context, now time.Time, ask bool, due time.Time) (next, candidates time.Time) {
	if !c.watchView().Synced { // a Node that such a view lacks is not known to be gone
		return time.Time{}, due
	}
	moved, next := c.follow(ctx, now)
	remember, err := c.rememberScope(ctx, now)
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Message: "save the state of the cluster: " + err.Error()})
	}
	if moved || ask {
		c.e.beat()
		now = time.Now() // that save may have been slow
		c.lead.SettleSlots()
		due = earliest(c.askAll(ctx, now), c.seekEvidence(now))
		c.tell()
	}
	return earliest(earliest(next, remember), due), due
}

// askAll asks about every target that a check wants remedied, in the order of
// the report. It begins anew when a slow store has let what that rests on grow old. // I4
func (c *cluster) askAll(ctx context.Context, now time.Time) (due time.Time) {
	c.mu.Lock()
	acting := c.ledger.Acting(now)
	c.mu.Unlock()
	live := map[string]bool{}
	for i := range acting {
		check := c.check(acting[i].ID())
		if check == nil {
			continue
		}
		for j := range acting[i].Targets {
			t := &acting[i].Targets[j]
			if !acts(check, t) {
				continue
			}
			live[targetKey(t)] = true
			due = earliest(due, c.consider(ctx, check, t, now))
			c.e.beat()
			if time.Since(now) > probeFresh {
				c.wake()
				return due
			}
		}
	}
	c.forget(live)
	return due
}

// acts says whether the check asks for something that fenced does. A request
// that the in-cluster judge has already written on the Machine is no obstacle
// to a power cycle: fenced is the one that carries it out.
func acts(check *policy.Check, t *policy.TargetReport) bool {
	if strategyOf(check, t) == "" {
		return false
	}
	for _, r := range t.Refusals {
		if r != reason.AlreadyRequested || t.Action != policy.PowerCycle {
			return false
		}
	}
	return true
}

// strategyOf is how fenced itself does what a check asks for, "" when others do
// it. A request from fenced's own template needs no object: it is a power cycle.
func strategyOf(check *policy.Check, t *policy.TargetReport) remediate.Strategy {
	switch t.Action {
	case policy.PowerCycle:
		return remediate.PowerCycle
	case policy.DeleteMachine, policy.MarkOwner:
		return remediate.DeleteMachine
	case policy.CreateRequest:
		if own(check, t) {
			return remediate.PowerCycle
		}
	}
	return ""
}

// own says whether the request would be made from fenced's own template.
func own(check *policy.Check, t *policy.TargetReport) bool {
	template := cmp.Or(t.Template, check.Template)
	return template != nil && template.IsOwn()
}

// consider asks the gates about one candidate: the cheap ones, then a probe of
// BMC and cluster, then all of them, then it starts the run.
func (c *cluster) consider(ctx context.Context, check *policy.Check, t *policy.TargetReport, now time.Time) time.Time {
	a, ok := c.candidateOf(check, t)
	if !ok {
		return time.Time{}
	}
	if g, ok := firstFailing(guard.Gates(c.e.opt.Guards, c.facts(a, nil, now), now)); ok {
		c.refuse(a, g)
		c.trip(ctx, a, g, now)
		return askedAgain(g, now)
	}
	if g, ok := firstFailing(c.backOff(a, now)); ok {
		c.refuse(a, g)
		return askedAgain(g, now)
	}
	p := c.probed(a, now)
	if p == nil {
		return time.Time{} // it wakes the loop when it is done
	}
	a.gates = guard.Gates(c.e.opt.Guards, c.facts(a, p, now), now)
	g, refused := firstFailing(a.gates)
	switch {
	case refused:
		c.refuse(a, g)
		c.trip(ctx, a, g, now)
		return earliest(askedAgain(g, now), p.retryAt())
	case now.Sub(p.at) > probeFresh, !sameDraft(p.draft, a.draft):
		c.dropProbe(a.key)
		c.probed(a, now) // before another check that wants the same can, and so on in turns // L4
		return time.Time{}
	}
	s := p.session
	p.session = nil
	c.dropProbe(a.key)
	return c.startSoon(ctx, a, c.completed(p, check), s, now)
}

// askedAgain is when a gate that does not hold is asked again: much of what gates
// look at does not show in the checks. // L4
func askedAgain(g reason.Gate, now time.Time) time.Time {
	if g.Until.After(now) {
		return g.Until
	}
	return now.Add(askEvery)
}

// probed gives the finished probe of a candidate. When there is none, or it is
// due again, it starts one and gives nil.
func (c *cluster) probed(a candidate, now time.Time) *probe {
	c.mu.Lock()
	p := c.probes[a.key]
	if p != nil && (p.running || now.Before(p.retryAt())) {
		c.mu.Unlock()
		if p.running {
			return nil
		}
		return p
	}
	next := &probe{running: true}
	if p != nil { // what is known stays visible while it is asked again
		*next = *p
		next.running, next.session = true, nil
	}
	c.probes[a.key] = next
	c.mu.Unlock()
	if p != nil {
		c.endProbe(p)
	}
	if !c.lead.Spawn(func(ctx context.Context) { c.runProbe(ctx, a) }) {
		c.dropProbe(a.key)
	}
	return nil
}

// refuse tells of a refusal once per target and reason.
func (c *cluster) refuse(a candidate, g reason.Gate) {
	c.mu.Lock()
	known := c.refused[a.key] == g.Reason
	c.refused[a.key] = g.Reason
	c.mu.Unlock()
	if !known {
		c.emit(event.Event{Type: event.Refused, Node: a.draft.Target.Node, Reason: g.Reason, Check: a.draft.CheckID, Gates: []reason.Gate{g},
			Message: g.Name + ": " + g.Value + " (needs " + g.Threshold + ", " + g.Source + ")"})
	}
}

// forget drops probes and refusals of targets that no check asks about any more.
func (c *cluster) forget(live map[string]bool) {
	c.mu.Lock()
	var stale []string
	for k, p := range c.probes {
		if !live[k] && !p.running {
			stale = append(stale, k)
		}
	}
	for k := range c.refused {
		if !live[k] {
			delete(c.refused, k)
		}
	}
	c.mu.Unlock()
	for _, k := range stale {
		c.dropProbe(k)
	}
}

func firstFailing(gates []reason.Gate) (reason.Gate, bool) {
	for _, g := range gates {
		if !g.Pass {
			return g, true
		}
	}
	return reason.Gate{}, false
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
