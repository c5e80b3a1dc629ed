package engine

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	beatEvery  = time.Second
	probeRetry = 30 * time.Second // after a probe that a gate refused
	probeFresh = 2 * time.Second  // age of the probe a run starts on // I4
	rerunAfter = 10 * time.Second // between two runs on one target, whatever the guards say
)

// decideLoop is the one deciding goroutine of a cluster. It runs when the view
// changed, when something else changed, and at the earliest deadline: never on
// a fixed rhythm.
func (c *cluster) decideLoop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			c.forget(nil) // ends the sessions of probes
			return nil
		case <-beat.C:
			c.e.beat()
			c.watchView(time.Now())
			continue
		case <-timer.C:
		case <-c.opt.Watch.Changed():
		case <-c.poke:
		}
		due := c.decide(ctx, time.Now())
		timer.Stop()
		if !due.IsZero() {
			timer.Reset(max(time.Millisecond, time.Until(due)))
		}
	}
}

// watchView notes when the view turns bad or good, and starts the quiet period
// after an outage. // I16
func (c *cluster) watchView(now time.Time) {
	v := c.opt.Watch.View()
	bad := v.Problem
	switch {
	case !v.Synced:
		bad = "not synced yet; " + v.Problem
	case v.Age > c.e.opt.Guards.ViewMaxAge:
		bad = "the view is " + v.Age.Round(time.Second).String() + " old; " + v.Problem
	case v.Skew.Abs() > c.e.opt.Guards.ClockSkewMax:
		bad = "this clock and the API server's differ by " + v.Skew.Abs().String()
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
		c.emit(Event{Type: EventView, Message: bad})
		c.wake()
	}
}

// decide judges the whole snapshot and moves every candidate one step nearer
// to a run. It returns when time alone could change something; zero = never.
func (c *cluster) decide(ctx context.Context, now time.Time) time.Time {
	c.watchView(now)
	if !c.opt.Watch.View().Synced { // nothing is judged before the first full view
		return time.Time{}
	}
	snap := c.opt.Watch.Snapshot()
	snap.Checks = append(snap.Checks[:len(snap.Checks):len(snap.Checks)], c.opt.FileChecks...)
	snap.OpenRuns = c.openTargets()
	rep := policy.Decide(snap, now)
	c.mu.Lock()
	c.snapshot, c.report, c.judged = snap, rep, true
	c.mu.Unlock()
	c.rememberOwn(ctx, &snap)
	if err := c.rememberSynced(ctx, now); err != nil {
		c.emit(Event{Type: EventFailed, Message: "save the state of the cluster: " + err.Error()})
	}

	due, _ := rep.NextCheck()
	live := map[string]bool{}
	for i := range rep.Checks {
		for j := range rep.Checks[i].Targets {
			t := &rep.Checks[i].Targets[j]
			if !acts(t) {
				continue
			}
			live[targetKey(t)] = true
			due = earliest(due, c.consider(ctx, &rep.Checks[i], t, now))
		}
	}
	c.forget(live)
	return due
}

// acts says whether the check asks for something that fenced does. A request
// that the in-cluster judge has already written on the Machine is no obstacle
// to a power cycle: fenced is the one that carries it out.
func acts(t *policy.TargetReport) bool {
	if t.Action != policy.PowerCycle && t.Action != policy.DeleteMachine {
		return false
	}
	for _, r := range t.Refusals {
		if r != policy.AlreadyRequested || t.Action != policy.PowerCycle {
			return false
		}
	}
	return true
}

// consider asks the gates about one candidate: the cheap ones, then a probe of
// BMC and cluster, then all of them, then it starts the run.
func (c *cluster) consider(ctx context.Context, check *policy.CheckReport, t *policy.TargetReport, now time.Time) time.Time {
	a := c.applicant(check, t)
	if g, ok := firstFailing(policy.Guards(c.e.opt.Guards, c.facts(a, nil, now), now)); ok {
		c.refuse(a, g)
		return g.Until
	}
	if again := c.lastEnded(a).Add(rerunAfter); now.Before(again) {
		return again
	}
	p := c.probed(a, now)
	if p == nil {
		return time.Time{} // it wakes the loop when it is done
	}
	g, refused := firstFailing(policy.Guards(c.e.opt.Guards, c.facts(a, p, now), now))
	switch {
	case refused:
		c.refuse(a, g)
		return earliest(g.Until, p.retryAt())
	case now.Sub(p.at) > probeFresh:
		c.dropProbe(a.key)
		c.wake() // probe again at once
		return time.Time{}
	}
	s := p.session
	p.session = nil
	c.dropProbe(a.key)
	c.begin(ctx, p.draft, s)
	return time.Time{}
}

// probed gives the finished probe of a candidate. When there is none, or it is
// due again, it starts one and gives nil.
func (c *cluster) probed(a applicant, now time.Time) *probe {
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
	c.spawn(func(ctx context.Context) { c.runProbe(ctx, a) })
	return nil
}

// lastEnded is when the newest run on this target ended: one that was dropped
// at once must not be begun again at once.
func (c *cluster) lastEnded(a applicant) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last time.Time
	for _, r := range c.runs {
		if !r.Open() && sameTarget(r.Target, a.draft.Target) {
			last = later(last, r.Ended)
		}
	}
	return last
}

// begin starts a run; one that cannot be started was told of and is asked for
// again by the next decision.
func (c *cluster) begin(ctx context.Context, draft remediate.Run, s *session) {
	if _, err := c.start(ctx, draft, s); err != nil && s != nil {
		s.close(ctx)
	}
}

// refuse tells of a refusal once per target and reason.
func (c *cluster) refuse(a applicant, g policy.Gate) {
	c.mu.Lock()
	known := c.refused[a.key] == g.Reason
	c.refused[a.key] = g.Reason
	c.mu.Unlock()
	if !known {
		c.emit(Event{Type: EventRefused, Node: a.draft.Target.Node, Reason: string(g.Reason),
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

func firstFailing(gates []policy.Gate) (policy.Gate, bool) {
	for _, g := range gates {
		if !g.Pass {
			return g, true
		}
	}
	return policy.Gate{}, false
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
