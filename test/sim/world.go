package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// cluster is the name of the one cluster.
const cluster = "c"

// World is everything outside of fenced. Its mutex guards all that belongs to it.
// No adapter holds it while waiting.
type World struct {
	mu      sync.Mutex
	plan    Plan
	defect  Defect
	ctx     context.Context
	workers sync.WaitGroup // people's orders and instances

	began     time.Time
	calm      bool
	rng       *rand.Rand // for faults, second by second
	dice      *rand.Rand // for single calls
	pen       *rand.Rand // for wrong configurations
	ticks     *rand.Rand // for clocks
	luck      *rand.Rand // for what happens to a host and its record apart from each other
	api       *fake.State
	check     *policy.Check // as it should be
	rivalTo   time.Time     // another remediator holds its Lease until then
	medik8sTo time.Time     // and medik8s its Leases on Nodes
	visitTo   time.Time     // another installation tries to hold the Lease fenced until then
	hosts     []*host
	store     *memory
	owners    *ownership
	instances []*instance
	crowd     peopleState
	asks      asker
	others    others
	checkGone bool      // the check is deleted
	home      string    // UID of the cluster
	copyTo    time.Time // until when the kubeconfig leads to a copy of it
	sessions  uint64    // number of BMC sessions so far
	mistakes  []mistake
	files     []policy.Check        // of policies.d
	markers   []string              // of passwords
	chassis   map[string]*fake.Host // every machine that ever had a Node
	backups   []backup              // of the store, the newest last

	ledger  ledger // what the audits remember
	trace   []entry
	found   []Violation
	outcome Outcome
}

// entry is one line of the story.
type entry struct {
	at   time.Duration
	host string // "" for all hosts
	text string
}

// Violation is one broken rule.
type Violation struct {
	Rule string // like I1
	Host string
	Text string // with seed, time and the last events of the host
}

// NewWorld creates the world of a plan, without faults. It must be called in a
// synctest bubble. Pause files are created in dir.
func NewWorld(ctx context.Context, dir string, p Plan, d Defect) *World {
	w := &World{plan: p, defect: d, ctx: ctx, began: time.Now(), rng: rand.New(rand.NewPCG(p.Seed, 2)),
		dice: rand.New(rand.NewPCG(p.Seed, 3)), pen: rand.New(rand.NewPCG(p.Seed, 4)), ticks: rand.New(rand.NewPCG(p.Seed, 5)), luck: rand.New(rand.NewPCG(p.Seed, 7)),
		store: newMemory(), ledger: newLedger(), markers: markers(p.marker()),
		chassis: map[string]*fake.Host{}}
	w.outcome = Outcome{Faults: map[string]int{}, Orders: map[string]int{}, Ends: map[string]int{}, Rules: map[string]int{}, Actions: map[string]int{}, Cases: map[string]int{}}
	w.crowd = peopleState{stops: map[stopKey]stop{}, files: map[*instance]stop{}, helped: map[string]int{}, held: map[string]bool{}}
	w.asks, w.others = newAsker(), newOthers(p.Seed)
	w.api = fake.NewState(cluster)
	w.home, w.api.Medik8s = w.api.UID, w.plan.Medik8s
	w.api.Plugin = p.Plugin
	w.api.PodsOfANode, w.api.ReadyAfter, w.api.Lifecycle = 3, 5*time.Second, true
	w.api.IgnorePreconditions, w.api.RestoreNothing = d.IgnoresPreconditions, d.RestoresNothing
	w.api.Note, w.api.OnIsolate, w.api.Stamp = w.note, w.isolated, w.stamp
	w.owners = &ownership{w: w}
	for i := range p.ControlPlanes + p.Workers {
		w.addHost(i)
	}
	w.addCheck()
	for i := range p.Instances {
		w.instances = append(w.instances, newInstance(w, dir, i))
	}
	return w
}

func (w *World) now() time.Duration { return time.Since(w.began) }

// note adds a line to the story. w.mu is held.
func (w *World) note(host, format string, args ...any) {
	w.trace = append(w.trace, entry{w.now(), host, fmt.Sprintf(format, args...)})
}

// fault counts one fault. w.mu is held.
func (w *World) fault(kind, host, format string, args ...any) {
	w.outcome.Faults[kind]++
	if format != "" {
		w.note(host, "fault "+kind+": "+format, args...)
	}
}

const traceShown = 200

// violate records a broken rule, once for each host. w.mu is held.
func (w *World) violate(rule, host, format string, args ...any) {
	w.outcome.Rules[rule]++
	if slices.ContainsFunc(w.found, func(v Violation) bool { return v.Rule == rule && v.Host == host }) {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s at %s of seed %d: %s\n", rule, host, w.now().Round(time.Millisecond), w.plan.Seed, fmt.Sprintf(format, args...))
	var shown []string
	for i := len(w.trace) - 1; i >= 0 && len(shown) < traceShown; i-- {
		if e := w.trace[i]; e.host == host || e.host == "" || host == "" {
			shown = append(shown, fmt.Sprintf("  %12s %s %s", e.at.Round(time.Millisecond), e.host, e.text))
		}
	}
	slices.Reverse(shown)
	b.WriteString(strings.Join(shown, "\n"))
	w.found = append(w.found, Violation{rule, host, b.String()})
}

// do runs f while the world does not change.
func (w *World) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// hostOf finds the host of a Node. w.mu is held.
func (w *World) hostOf(node string) *host {
	for _, h := range w.hosts {
		if h.Name == node {
			return h
		}
	}
	return nil
}

// chance reports whether an event with this rate per hour happens in this second.
// w.mu is held.
func (w *World) chance(perHour float64) bool { return w.rng.Float64() < perHour/3600 }

// between draws a duration.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// open reports whether a run is open on a host. w.mu is held.
func (w *World) open(node string) (remediate.Run, bool) {
	for _, r := range w.ledger.runs {
		if r.Target.Node == node && r.Open() {
			return r, true
		}
	}
	return remediate.Run{}, false
}

// No call fails in the calm.
func (w *World) lost() float64       { return w.unlessCalm(w.plan.CallLost) }
func (w *World) slow() float64       { return w.unlessCalm(w.plan.CallSlow) }
func (w *World) storeFails() float64 { return w.unlessCalm(w.plan.StoreFails) }

func (w *World) unlessCalm(p float64) float64 {
	if w.calm {
		return 0
	}
	return p
}

// after runs f later.
func (w *World) after(d time.Duration, f func()) {
	w.workers.Go(func() {
		if sleep(w.ctx, d) == nil {
			f()
		}
	})
}
