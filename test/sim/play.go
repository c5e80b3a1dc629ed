package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// Play plays the story of one seed in a bubble of virtual time and returns its
// outcome.
func Play(t *testing.T, p Plan, d Defect) (out Outcome, found []Violation) {
	began, dir := time.Now(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := NewWorld(ctx, dir, p, d)
		if err := w.enroll(ctx); err != nil {
			t.Fatal(err)
		}
		for broken := 0; w.now() < p.Storm+p.Calm && broken == 0; {
			time.Sleep(time.Second)
			w.do(func() {
				w.second()
				broken = w.outcome.Rules[p.StopAt]
			})
		}
		w.finish()
		cancel()
		w.workers.Wait()
		out, found = w.outcome, w.found
		out.Virtual = w.now()
	})
	out.Real, out.Seeds = time.Since(began), 1
	return out, found
}

// second simulates one second of the world. w.mu is held.
func (w *World) second() {
	now := time.Now()
	w.api.Tick(now)
	w.tickMetal(now)
	w.tickGit()
	w.tickStrangers(now)
	w.tickAsks(now)
	w.tickOthers(now)
	for _, i := range w.instances {
		i.tickClock(now)
		i.tick(now)
	}
	if !w.calm && w.now() >= w.plan.Storm {
		w.clear()
	}
	if !w.calm {
		w.troubles(now)
	}
	w.tickLives(now)
	w.people(now)
	w.audit(now)
}

// troubles lets things go wrong, by the plan.
func (w *World) troubles(now time.Time) {
	for _, h := range w.hosts {
		h.trouble(now)
		h.troubleBMC(now)
		for _, o := range h.outlets {
			o.trouble(now)
		}
	}
	for _, i := range w.instances {
		i.trouble(now)
	}
	w.makeMistakes(now)
	w.confirmLostHost(now)
	w.mayTakeName(now)
	w.mayLeadToACopy(now)
	w.switchOnByHand(now)
	w.mayRestore(now)
	if w.chance(w.plan.Outages / 3) {
		w.api.DownUntil = now.Add(between(w.rng, 10*time.Second, 4*time.Minute))
		w.fault("api-down", "", "until %s", w.api.DownUntil.Sub(w.began).Round(time.Second))
	}
}

// trouble cuts an instance off, at random.
func (i *instance) trouble(now time.Time) {
	w := i.w
	if w.chance(w.plan.Outages) {
		i.apiCut = now.Add(between(w.rng, 5*time.Second, 5*time.Minute))
		w.fault("api-partition", "", "%s until %s", i.name, i.apiCut.Sub(w.began).Round(time.Second))
	}
	if w.chance(w.plan.Outages) {
		i.storeCut = now.Add(between(w.rng, 5*time.Second, 3*time.Minute))
		w.fault("store-partition", "", "%s until %s", i.name, i.storeCut.Sub(w.began).Round(time.Second))
	}
	if w.chance(w.plan.Outages / 3) {
		i.forbidden = now.Add(between(w.rng, 5*time.Second, 4*time.Minute))
		w.fault("api-forbids", "", "%s until %s", i.name, i.forbidden.Sub(w.began).Round(time.Second))
	}
	if w.chance(w.plan.Outages / 3) {
		by := between(w.rng, -20*time.Second, 20*time.Second)
		if i.clock.skew != i.clock.differs {
			by = i.clock.differs
		}
		if i.clock.mended.IsZero() {
			i.setSkew(by, now)
		}
	}
	if w.chance(w.plan.Outages) && w.plan.Instances > 1 {
		i.handOver = true
		w.fault("hand-over", "", "%s", i.name)
	}
}

// clear ends the storm: it repairs everything except the hosts that fenced must
// bring back. w.mu is held.
func (w *World) clear() {
	w.calm = true
	w.note("", "the storm is over")
	w.api.DownUntil, w.visitTo, w.rivalTo = time.Time{}, time.Time{}, time.Time{}
	w.api.Contested, w.api.Contender = remediate.No, ""
	if w.api.Fenced.By == nil {
		w.api.Fenced = fake.FencedLease{}
	}
	for _, h := range w.hosts {
		h.mend()
	}
	w.correct()
	w.giveNamesBack()
	w.leadHome()
	for _, i := range w.instances {
		i.apiCut, i.storeCut, i.forbidden = time.Time{}, time.Time{}, time.Time{}
		if c := &i.clock; c.mended.IsZero() {
			c.skew, c.since = c.differs, time.Now()
		} else {
			c.mended = time.Now()
		}
		if i.cur != nil {
			i.cur.view.stuck = time.Time{}
		}
	}
}

// Outcome is the result of one seed, or of many.
type Outcome struct {
	Seeds     int
	Virtual   time.Duration
	Real      time.Duration
	Rounds    int            // audits
	Faults    map[string]int // by kind
	Ends      map[string]int // of runs, by step and reason
	Actions   map[string]int // commands and writes that were audited
	Rules     map[string]int // violations, by rule
	Orders    map[string]int // by people
	Cases     map[string]int // cases in which a rule had something to forbid, by rule
	Handovers int
	Raced     int // isolated while somebody else was just switching the host on
	Misled    int // isolated after a confirmation that was wrong, or no longer true
	Lied      int // isolated because a BMC consistently reported a false Off for a dead node
	Stranded  int // at the end: Off, and covered by an open record
}

func (o *Outcome) Add(p Outcome) {
	o.Seeds += p.Seeds
	o.Virtual += p.Virtual
	o.Real += p.Real
	o.Rounds += p.Rounds
	o.Handovers += p.Handovers
	o.Raced += p.Raced
	o.Lied += p.Lied
	o.Stranded += p.Stranded
	merge(&o.Faults, p.Faults)
	merge(&o.Orders, p.Orders)
	merge(&o.Cases, p.Cases)
	o.Misled += p.Misled
	merge(&o.Ends, p.Ends)
	merge(&o.Actions, p.Actions)
	merge(&o.Rules, p.Rules)
}

func merge(into *map[string]int, from map[string]int) {
	if *into == nil {
		*into = map[string]int{}
	}
	for k, n := range from {
		(*into)[k] += n
	}
}

// Table is the outcome for docs/results.md.
func (o *Outcome) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| What | How many |\n|---|---|\n")
	fmt.Fprintf(&b, "| seeds | %d |\n| virtual hours | %.0f |\n| audits | %d |\n", o.Seeds, o.Virtual.Hours(), o.Rounds)
	fmt.Fprintf(&b, "| changes of owner | %d |\n", o.Handovers)
	for _, part := range []struct {
		title string
		all   map[string]int
	}{{"faults", o.Faults}, {"orders by people", o.Orders}, {"audited", o.Actions}, {"cases of single rules", o.Cases}, {"runs ended", o.Ends}} {
		total, texts := 0, []string{}
		for _, k := range slices.SortedFunc(maps.Keys(part.all), func(a, b string) int { return part.all[b] - part.all[a] }) {
			total += part.all[k]
			texts = append(texts, fmt.Sprintf("%s %d", k, part.all[k]))
		}
		fmt.Fprintf(&b, "| %s | %d: %s |\n", part.title, total, strings.Join(texts, ", "))
	}
	fmt.Fprintf(&b, "| isolated on a consistent lie about a dead node (undetectable) | %d |\n", o.Lied)
	fmt.Fprintf(&b, "| isolated on a person's word that was wrong, or had ceased to be true | %d |\n", o.Misled)
	fmt.Fprintf(&b, "| isolated while a foreign hand switched the host on, within the 5 s of a proof | %d |\n", o.Raced)
	fmt.Fprintf(&b, "| hosts Off at the end, each with an open record | %d |\n", o.Stranded)
	broken := 0
	for _, n := range o.Rules {
		broken += n
	}
	fmt.Fprintf(&b, "| violations | %d %v |\n", broken, o.Rules)
	return b.String()
}
