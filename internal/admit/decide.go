package admit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

const (
	beatEvery  = time.Second
	probeFresh = 2 * time.Second // age of the probe a run starts on // I4
	gateRetry  = 5 * time.Second // between two evaluations of a gate without a known end
)

// Run is the only deciding goroutine of a cluster. It runs until ctx ends. It decides when
// the view changes, when something else changes (Wake), and at the earliest deadline. It does
// not poll.
func (c *Cluster) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	var due time.Time // when the candidates are next considered
	for {
		ask := true
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			c.opt.Beat()
			c.view.renew(c.checkView())
			c.deletions.reportOverdue(time.Now())
			c.OwnHost.check(time.Now())
			c.opt.Lead.CompareSlots()
			c.opt.Lead.ReportOwnerless()
			continue
		case <-timer.C:
		case <-c.view.opt.Watch.Changed():
			ask = false // unless the ledger has changed
		case <-c.wakeup:
		}
		var next time.Time
		next, due = c.decide(ctx, time.Now(), ask, due)
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(time.Millisecond, time.Until(next)))
		}
	}
}

// checkView returns the view, and reports when it becomes usable or unusable. // I16
func (c *Cluster) checkView() View {
	v, problem, changed := c.view.Check()
	if changed {
		c.emit(event.Event{Type: event.ViewChanged, Message: problem})
		c.Wake()
	}
	return v
}

// modeReporter reports in which mode a cluster is, at the start and after each change. Only the deciding goroutine uses it.
type modeReporter struct{ told event.Told[string] }

func (m *modeReporter) report(opt *Options, armed bool) {
	mode := opt.Mode
	if mode == guard.ModeObserve && armed {
		mode += ", armed"
	}
	if opt.Stop.Paused(opt.Name) != "" {
		mode += ", paused"
	}
	if m.told.News(mode) {
		opt.Emit(event.Event{Type: event.ModeChanged, Cluster: opt.Name, Message: "the mode is " + mode, Inputs: event.ModeIn + strings.ReplaceAll(mode, ", ", ",")})
	}
}

// decide applies the changes to the ledger. If a decision may change, or if ask is set, it
// moves every candidate one step nearer to a run. due is when the candidates were to be
// considered next. It returns that time for now on (candidates), and when to call it again
// although nothing changes (next); zero: never.
func (c *Cluster) decide(ctx context.Context, now time.Time, ask bool, due time.Time) (next, candidates time.Time) {
	if files := c.Policies.next.Swap(nil); files != nil {
		for _, ev := range c.scope.replaceFiles(*files, now) { // the quiet period of a larger scope begins before the first decision with it // I18
			c.emit(ev)
		}
		c.model.Objects.ReplaceFiles(*files, now)
	}
	c.mode.report(&c.opt, c.Armed())
	v := c.checkView()
	if !v.Synced { // a Node that is missing from such a view may still exist
		c.view.took(time.Time{})
		return time.Time{}, due
	}
	read := time.Now().Add(-v.Age)
	changes := c.view.opt.Watch.Changes()
	c.checkView()               // after Changes: an outage that has just ended may be the cause of them // I16
	c.opt.Hosts.Follow(changes) // before the ledger: no host is in the ledger that is not known here // I10
	c.evidence.updateBook(now)
	outageEnd, _ := c.view.gapEnds()
	changed, next := c.model.Follow(now, changes, outageEnd)
	c.opt.Hosts.NoteNodes(ctx, changes)
	c.view.took(read)
	scopeDue, err := c.scope.save(ctx, now)
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Message: "save the scope of the cluster, which is tried again in " + scopeRetry.String() + ": " + err.Error()})
	}
	if changed || ask {
		c.opt.Beat()
		now = time.Now() // the save may have been slow
		c.opt.Lead.CompareSlots()
		found, _ := c.model.Objects.Counters()
		checksDue := c.checks.tell(found, c.emit, now) // before the refusals that follow from it
		checksDue = times.Sooner(checksDue, c.checks.reportCrowds(c.model.Objects.Crowds(), c.emit, now))
		mayAct := c.opt.Stop.Paused(c.opt.Name) == "" && c.opt.Lead.WhyNotAct(now) == "" && c.Armed() // else no wait is shortened
		due = times.Sooner(c.considerAll(ctx, now), c.evidence.startReads(mayAct, now))
		due = times.Sooner(due, checksDue)
		due = times.Sooner(due, c.resumer.consider(now))
		c.opt.Decided()
	}
	return times.Sooner(times.Sooner(next, scopeDue), due), due
}

// considerAll considers every target that a check wants remediated, in the order of the
// report. If a slow store makes the report old, it stops and requests a new decision. It
// returns when to consider them again; zero: never. // I4
func (c *Cluster) considerAll(ctx context.Context, now time.Time) (due time.Time) {
	acting := c.model.Objects.ActingChecks(now)
	pairs, handed := map[pair]bool{}, map[pair]bool{}
	requested, due := c.Requested.consider(ctx, pairs, now)
	if c.tooOld(now) {
		return times.Sooner(due, c.refused.tell(now))
	}
	live := map[string]bool{}
	for key := range requested {
		live[key] = true
	}
	for i := range acting {
		check := c.model.Objects.Check(acting[i].ID())
		if check == nil {
			continue
		}
		id := cluster.CheckID(check.ID())
		for j := range acting[i].Targets {
			t := &acting[i].Targets[j]
			if requested[cluster.TargetKey(t)] { // a request asks for the same
				continue
			}
			pairs[pair{id, cluster.TargetKey(t)}] = true
			switch {
			case check.HandsOver(t) && t.Acts():
				handed[pair{id, cluster.TargetKey(t)}] = true
			case !cluster.IsActionable(check, t):
				c.recordCheckRefusal(&acting[i], check, t, now)
				continue
			default:
				live[cluster.TargetKey(t)] = true
			}
			if c.probes.running(cluster.TargetKey(t)) { // consider would say the same; with many candidates most are
				continue
			}
			if a, ok := c.candidate(check, t); ok {
				due = times.Sooner(due, c.consider(ctx, a, now))
			}
			if c.tooOld(now) {
				return times.Sooner(due, c.refused.tell(now))
			}
		}
	}
	c.probes.dropAllBut(live)
	c.Escalation.KeepOnly(func(check, target string) bool { return handed[pair{check, target}] })
	c.refused.endAllBut(pairs, func(r Refused) progress { return r.progressIn(c.model) }, now)
	return times.Sooner(due, c.refused.tell(now))
}

// tooOld says whether the report of now is too old for another candidate. It then requests a
// new decision.
func (c *Cluster) tooOld(now time.Time) bool {
	c.opt.Beat()
	if time.Since(now) <= probeFresh {
		return false
	}
	c.Wake()
	return true
}

// consider evaluates the gates of one candidate: first without I/O, then, after a probe of
// BMC and cluster, all of them. If all pass it starts the run; a candidate for which another remediator is asked is not
// probed. It returns when to consider the candidate again; zero: after the next change.
func (c *Cluster) consider(ctx context.Context, a cluster.Candidate, now time.Time) time.Time {
	if c.probes.running(a.Key) {
		return time.Time{} // the probe wakes the loop when it is done
	}
	gates := c.gates(a, nil, now)
	c.OwnHost.record(a, gates, now)
	g, refused := cluster.FirstFailing(gates)
	if a.AsksOther {
		if waits := c.Escalation.Consider(a, !refused, now); !refused {
			if waits.Name != "" {
				c.recordRefusal(a, waits, nextTry(waits, now), now)
			}
			return now.Add(gateRetry)
		}
	}
	if refused {
		c.recordRefusal(a, g, nextTry(g, now), now)
		c.quarantineIfOverLimit(ctx, a, g, now)
		return recheckAt(g, now)
	}
	if g, ok := cluster.FirstFailing(c.backOffGates(a, now)); ok {
		c.recordRefusal(a, g, nextTry(g, now), now)
		return recheckAt(g, now)
	}
	p := c.probes.get(a, now)
	if p == nil {
		return time.Time{} // it wakes the loop when it is done
	}
	a.Gates = c.gates(a, p, now)
	switch g, refused = cluster.FirstFailing(a.Gates); {
	case refused: // by what the probe has read
		c.recordRefusal(a, g, times.Later(g.Until, p.retryAt()), now)
		c.quarantineIfOverLimit(ctx, a, g, now)
		return times.Sooner(recheckAt(g, now), p.retryAt())
	case now.Sub(p.at) > probeFresh, !sameDraft(p.draft, a.Draft):
		c.probes.drop(a.Key)
		c.probes.get(a, now) // now: otherwise two checks with the same target could drop each other's probes for ever // L4
		return time.Time{}
	}
	with := takeover{session: c.probes.take(p), look: &p.look}
	c.probes.drop(a.Key)
	return c.startAsync(ctx, a, p.complete(c.model.Options.Draft, a.Check), with, now)
}

// recheckAt is when a failing gate is evaluated again: most inputs of gates are not in the
// watch, so no change announces them. // L4
func recheckAt(g reason.Gate, now time.Time) time.Time {
	if g.Until.After(now) {
		return g.Until
	}
	return now.Add(gateRetry)
}

// quarantineIfOverLimit quarantines a host that a check wants fenced again although it has
// reached the limit of runs in a day. // I15
func (c *Cluster) quarantineIfOverLimit(ctx context.Context, a cluster.Candidate, g reason.Gate, now time.Time) {
	if names := a.Draft.Target.Names(); !g.Pass && g.Reason == reason.FencesPerDay && len(names) > 0 {
		c.opt.Stop.Quarantine(ctx, c.opt.Name, names[0], g.Value, now)
	}
}

// overdueEvery is how often the deciding goroutine looks for deletions that are overdue.
const overdueEvery = 5 * time.Second

// deletions are those of Machines which, or the Nodes of which, still exist. Only the deciding goroutine uses it.
type deletions struct {
	opt      Options
	wake     func()
	next     time.Time
	reported map[string]bool // the overdue ones, by run ID
}

// reportOverdue reports each deletion once that has become overdue. Its place is free from
// now on.
func (d *deletions) reportOverdue(now time.Time) {
	if now.Before(d.next) || !d.opt.Lead.Leads() {
		return
	}
	d.next = now.Add(overdueEvery)
	_, list := d.opt.Model.Disappearing(now)
	slices.SortFunc(list, func(a, b remediate.Run) int { return strings.Compare(a.ID, b.ID) })
	reported := map[string]bool{}
	for _, r := range list {
		if reported[r.ID] = true; d.reported[r.ID] {
			continue
		}
		d.opt.Emit(event.Event{Type: event.Failed, Cluster: d.opt.Name, Node: r.Target.Node, Run: r.ID, Check: r.CheckID,
			Reason: reason.DeletionOverdue, Message: overdueMessage(r, d.opt.Limits.Now().Guards.DeletionTimeout)})
		d.wake()
	}
	d.reported = reported
}

func overdueMessage(r remediate.Run, timeout time.Duration) string {
	return fmt.Sprintf("delete Machine %s/%s: the Machine or its Node still exists %s after that (guards.deletionTimeout), so it no longer counts against guards.maxDeletions; "+
		"look at its finalizers and at the log of its controller, and remove none while the host may run", r.Target.Namespace, r.Target.Machine, timeout)
}
