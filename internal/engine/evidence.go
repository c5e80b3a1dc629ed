package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	evidenceEvery  = 15 * time.Second // between two looks at one BMC
	evidenceMaxAge = 30 * time.Second // older readings prove nothing
	evidenceAtOnce = 8                // BMCs that are looked at together
	evidenceTime   = 20 * time.Second // one look, both readings
	evidencePause  = time.Second      // between two searches for targets
)

// evidence is what the BMC of one Node said, while a check waits that would act
// at once on a host that is off.
type evidence struct {
	running bool
	off     bool      // read twice
	at      time.Time // of the newest reading
	next    time.Time // not asked again before
}

// seekEvidence asks the BMCs of the targets that a check waits for, if the check
// would not wait for a host that reads Off. It says when to seek again.
func (c *cluster) seekEvidence(now time.Time) (due time.Time) {
	act := c.e.stop.Paused(c.opt.Name) == "" && c.lead.WhyNotAct(now) == "" && c.armed()
	c.mu.Lock()
	defer c.mu.Unlock()
	checks := c.shortening()
	if len(checks) == 0 && len(c.evidence) == 0 {
		return time.Time{}
	}
	if again := c.sought.Add(evidencePause); now.Before(again) {
		return again
	}
	c.sought = now
	wanted := map[string]remediate.Run{}
	if act {
		wanted = c.waiting(checks)
	}
	c.dropEvidence(wanted, now)
	busy := 0
	for _, ev := range c.evidence {
		if ev.running {
			busy++
		}
	}
	for _, node := range c.byTurn(wanted) {
		ev := c.evidence[node]
		switch {
		case ev != nil && ev.running:
			continue
		case ev != nil && now.Before(ev.next):
			due = earliest(due, ev.next)
			continue
		case busy == evidenceAtOnce:
			return earliest(due, now.Add(evidencePause))
		case ev == nil:
			ev = &evidence{}
			c.evidence[node] = ev
		}
		draft := wanted[node]
		if !c.lead.Spawn(func(ctx context.Context) { c.readEvidence(ctx, draft, ev) }) {
			return time.Time{} // the claim ended meanwhile
		}
		busy++
		ev.running = true
	}
	return due
}

// byTurn puts first who waits longest to be asked, so that no name is always
// served before another. c.mu is held.
func (c *cluster) byTurn(wanted map[string]remediate.Run) []string {
	turn := func(node string) time.Time {
		if ev := c.evidence[node]; ev != nil {
			return ev.next
		}
		return time.Time{}
	}
	return slices.SortedFunc(maps.Keys(wanted), func(a, b string) int {
		return cmp.Or(turn(a).Compare(turn(b)), strings.Compare(a, b))
	})
}

// shortening are the checks that evidence may shorten. c.mu is held.
func (c *cluster) shortening() []policy.CheckID {
	var list []policy.CheckID
	for _, r := range c.ledger.Counters() {
		if check := c.ledger.Check(r.ID()); check != nil && check.ShortenOnEvidence {
			list = append(list, r.ID())
		}
	}
	return list
}

// waiting drafts a run for each target that is waited for, or that is only sick
// because of what its BMC said. c.mu is held.
func (c *cluster) waiting(checks []policy.CheckID) map[string]remediate.Run {
	wanted := map[string]remediate.Run{}
	for _, id := range checks {
		for _, t := range c.ledger.Waiting(id) {
			if t.Node == "" || t.Verdict != policy.Pending && (t.Verdict != policy.Unhealthy || c.evidence[t.Node] == nil) {
				continue
			}
			wanted[t.Node] = remediate.Run{Target: c.target(c.machine(&t), c.ledger.Node(t.Node), t.Node)}
		}
	}
	return wanted
}

// dropEvidence forgets what nobody waits for any more, and what has become old.
// c.mu is held.
func (c *cluster) dropEvidence(wanted map[string]remediate.Run, now time.Time) {
	for node, ev := range c.evidence {
		_, still := wanted[node]
		if ev.off && (!still || now.Sub(ev.at) > evidenceMaxAge) {
			ev.off = false
			c.ledger.SetReadsOff(now, node, false)
			c.wake()
		}
		if !still {
			delete(c.evidence, node)
		}
	}
}

// readEvidence looks at one BMC and tells the ledger whether the host is off,
// unless nobody waited for that any more.
func (c *cluster) readEvidence(ctx context.Context, draft remediate.Run, ev *evidence) {
	off, barred := c.readsOff(ctx, draft)
	now := time.Now()
	c.mu.Lock()
	if c.evidence[draft.Target.Node] == ev {
		ev.running, ev.off, ev.at, ev.next = false, off, now, now.Add(evidenceEvery)
		if barred { // asking again soon would lock the account
			ev.next = now.Add(power.AccountPause)
		}
		c.ledger.SetReadsOff(now, draft.Target.Node, off)
	}
	c.mu.Unlock()
	c.wake()
}

// readsOff says whether two spaced readings of the identified BMC say Off, the
// same proof that a run needs after its command. // I1, I8
func (c *cluster) readsOff(ctx context.Context, draft remediate.Run) (off, barred bool) {
	ctx, cancel := context.WithTimeout(ctx, evidenceTime)
	defer cancel()
	h, err := c.hosts.FindNew(ctx, draft.Target)
	if err != nil || !power.IsStrict(h.Levels[0]) { // what others say shortens no wait
		return false, false
	}
	s, err := power.Open(c.e.opt.Open, h, 0, c.e.opt.Power)
	if err != nil {
		return false, false
	}
	defer s.Close(ctx)
	for ctx.Err() == nil {
		r, err := s.Read(ctx)
		switch {
		case err != nil:
			return false, bmc.KindOf(err).RefusesAccount()
		case r.State != bmc.Off, c.hosts.Identify(ctx, h, 0, r, draft.Target, false) != guard.IdentityMatches:
			return false, false
		case s.Proof().Proven(time.Now()):
			return true, false
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(s.Proof().NextRead(time.Now()))):
		}
	}
	return false, false
}
