package admit

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	beatEvery  = time.Second
	probeFresh = 2 * time.Second // age of the probe a run starts on // I4
	askEvery   = 5 * time.Second // between two looks at a gate that does not say when it could hold
)

// Run is the one deciding goroutine of a cluster, until ctx ends. It decides when the view
// changed, when something else changed, and at the earliest deadline: never on a fixed
// rhythm.
func (c *Cluster) Run(ctx context.Context) error {
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
			c.opt.Beat()
			c.checkView()
			c.opt.Lead.SettleSlots()
			c.opt.Lead.ReportOwnerless()
			continue
		case <-timer.C:
		case <-c.view.opt.Watch.Changed():
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

// checkView gives the view, and tells when it turned bad or good. // I16
func (c *Cluster) checkView() View {
	v, problem, changed := c.view.Check()
	if changed {
		c.emit(event.Event{Type: event.ViewChanged, Message: problem})
		c.Wake()
	}
	return v
}

// decide takes what changed into the ledger and, when that may matter or it is
// asked to, moves every candidate one step nearer to a run. due is when the
// candidates are to be asked about again, and next when time alone could change
// something; zero = never.
func (c *Cluster) decide(ctx context.Context, now time.Time, ask bool, due time.Time) (next, candidates time.Time) {
	if !c.checkView().Synced { // a Node that such a view lacks is not known to be gone
		return time.Time{}, due
	}
	moved, next := c.follow(ctx, now)
	remember, err := c.scope.remember(ctx, now)
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Message: "save the state of the cluster: " + err.Error()})
	}
	if moved || ask {
		c.opt.Beat()
		now = time.Now() // that save may have been slow
		c.opt.Lead.SettleSlots()
		due = earliest(c.askAll(ctx, now), c.evidence.seek(c.mayShorten(now), now))
		c.opt.Decided()
	}
	return earliest(earliest(next, remember), due), due
}

// follow brings what is known up to date. It says whether anything may have to be done
// differently, and when time alone could change something; zero = never.
func (c *Cluster) follow(ctx context.Context, now time.Time) (moved bool, due time.Time) {
	changes := c.view.opt.Watch.Changes()
	c.checkView()               // after them: an outage that ended since may be what they show the end of // I16
	c.opt.Hosts.Follow(changes) // before the ledger: a host that is seen there is known here // I10
	c.evidence.tell(now)
	outage, _ := c.view.gaps()
	moved, due = c.book.follow(now, changes, outage)
	c.opt.Hosts.NoteOwnNode(ctx, changes)
	return moved, due
}

// mayShorten says whether this instance may act on a host that reads Off.
func (c *Cluster) mayShorten(now time.Time) bool {
	return c.opt.Stop.Paused(c.opt.Name) == "" && c.opt.Lead.WhyNotAct(now) == "" && c.Armed()
}

// askAll asks about every target that a check wants remedied, in the order of
// the report. It begins anew when a slow store has let what that rests on grow old. // I4
func (c *Cluster) askAll(ctx context.Context, now time.Time) (due time.Time) {
	acting := c.book.acting(now)
	live := map[string]bool{}
	for i := range acting {
		check := c.book.Check(acting[i].ID())
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
			c.opt.Beat()
			if time.Since(now) > probeFresh {
				c.Wake()
				return due
			}
		}
	}
	c.probes.keep(live)
	c.refused.keep(live)
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
func (c *Cluster) consider(ctx context.Context, check *policy.Check, t *policy.TargetReport, now time.Time) time.Time {
	a, ok := c.candidate(check, t)
	if !ok {
		return time.Time{}
	}
	if g, ok := firstFailing(c.gates(a, nil, now)); ok {
		c.refuse(a, g)
		c.trip(ctx, a, g, now)
		return askedAgain(g, now)
	}
	if g, ok := firstFailing(c.backOff(a, now)); ok {
		c.refuse(a, g)
		return askedAgain(g, now)
	}
	p := c.probes.get(a, now)
	if p == nil {
		return time.Time{} // it wakes the loop when it is done
	}
	a.gates = c.gates(a, p, now)
	g, refused := firstFailing(a.gates)
	switch {
	case refused:
		c.refuse(a, g)
		c.trip(ctx, a, g, now)
		return earliest(askedAgain(g, now), p.retryAt())
	case now.Sub(p.at) > probeFresh, !sameDraft(p.draft, a.draft):
		c.probes.drop(a.key)
		c.probes.get(a, now) // before another check that wants the same can, and so on in turns // L4
		return time.Time{}
	}
	s := p.session
	p.session = nil
	c.probes.drop(a.key)
	return c.startSoon(ctx, a, c.book.opt.Draft.completed(p, check), s, now)
}

// askedAgain is when a gate that does not hold is asked again: much of what gates
// look at does not show in the checks. // L4
func askedAgain(g reason.Gate, now time.Time) time.Time {
	if g.Until.After(now) {
		return g.Until
	}
	return now.Add(askEvery)
}

// refuse tells of a refusal once per target and reason.
func (c *Cluster) refuse(a candidate, g reason.Gate) {
	if c.refused.isNew(a.key, g.Reason) {
		c.emit(event.Event{Type: event.Refused, Node: a.draft.Target.Node, Reason: g.Reason, Check: a.draft.CheckID, Gates: []reason.Gate{g},
			Message: g.Name + ": " + g.Value + " (needs " + g.Threshold + ", " + g.Source + ")"})
	}
}

// trip quarantines a host whose runs of a day are used up and that is asked for once
// more. // I15
func (c *Cluster) trip(ctx context.Context, a candidate, g reason.Gate, now time.Time) {
	if node := a.draft.Target.Node; !g.Pass && g.Reason == reason.FencesPerDay && node != "" {
		c.opt.Stop.Quarantine(ctx, c.opt.Name, node, g.Value, now)
	}
}

// refusals are the last ones that were told, by the key of the candidate.
type refusals struct {
	mu    sync.Mutex
	byKey map[string]reason.Code
}

// isNew notes a refusal, and says whether it is another one than the last.
func (r *refusals) isNew(key string, code reason.Code) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.byKey[key] == code
	r.byKey[key] = code
	return !known
}

// keep drops what was told of all other candidates.
func (r *refusals) keep(live map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byKey, func(key string, _ reason.Code) bool { return !live[key] })
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
