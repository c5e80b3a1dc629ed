package admit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
)

// scopeOf returns what the configuration allows the daemon to act on in one cluster.
func scopeOf(o Options) state.Scope {
	s := state.Scope{Mode: o.Mode, Checks: map[string]string{}, Requests: o.RequestScope}
	for i := range o.Files {
		check := &o.Files[i]
		paused := check.Paused && check.Evaluator == "" // one that is handed over is acted on
		digest := digestOf(check.SelectsNodes, paused, check.Selector)
		switch check.Strategy {
		case policy.CountOnly:
			digest = onlyCounts + digest
		case policy.PowerCycleHosts: // as it was stored before other actions were told apart
		default:
			digest = string(check.Strategy) + " " + digest
		}
		name := check.Kind + " " + check.Key()
		if check.ClusterName != "" { // of the Cluster API; OpenShift has this kind, too
			name = check.Mark()
		}
		s.Checks[name] = digest + "/" + digestOf(true, whatItAllows(check), nil)
	}
	for i := range o.Budgets {
		b := &o.Budgets[i]
		s.Checks[policy.DisruptionBudgetKind+" "+b.Name] = limits + digestOf(b.SelectsMachines, b.MaxUnavailable.String(), b.Selector)
	}
	return s
}

// whatItAllows is which of its targets a check finds unhealthy, when and how many of them it lets be acted on, and whom it asks.
func whatItAllows(c *policy.Check) []any {
	all := []any{c.Conditions, c.MachineConditions, c.StartupTimeout, c.MaxUnhealthy, c.MinHealthy, c.UnhealthyRange, c.StormCooldown, c.ShortenOnEvidence, c.PauseRequests, c.Escalation}
	if c.Template != nil {
		all = append(all, *c.Template)
	}
	for _, w := range c.Windows {
		all = append(all, w.Text, w.Duration)
	}
	return all
}

// digestOf is a digest of what a check or a budget selects, and of what else counts of it.
func digestOf(kind bool, more any, selector fmt.Stringer) string {
	text := "-"
	if selector != nil {
		text = selector.String()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%t %v %s", kind, more, text))
	return hex.EncodeToString(sum[:6])
}

// onlyCounts begins the digest of a check that only counts, and limits that of a budget. Both forbid others to act on their targets.
const (
	onlyCounts = "counts "
	limits     = "limits "
)

// whyEnlarged says what the daemon may act on now and could not before; "" for nothing. // I18
func whyEnlarged(before, now state.Scope) string {
	switch {
	case before.Mode == "":
		return "the earlier scope is not on record"
	case now.Mode != before.Mode && now.Mode != guard.ModeObserve: // only respond acts on annotations, only evaluate on checks
		return "mode was " + before.Mode + " and is " + now.Mode
	}
	for _, may := range now.Requests {
		if !slices.Contains(before.Requests, may) {
			return "remediation requests: " + may + " is new"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before.Checks)) {
		if strings.HasPrefix(before.Checks[name], onlyCounts) && !strings.HasPrefix(now.Checks[name], onlyCounts) {
			return name + " only counted, and forbade others to act"
		}
		if strings.HasPrefix(before.Checks[name], limits) && before.Checks[name] != now.Checks[name] {
			return name + " is gone or limits something else"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.Checks)) {
		digest, known := before.Checks[name]
		was, allowed, _ := strings.Cut(digest, "/")
		is, allows, _ := strings.Cut(now.Checks[name], "/")
		switch {
		case strings.HasPrefix(is, limits): // a new one only forbids
		case !known:
			return name + " is new"
		case was != is:
			return name + " selects something else, or asks for another action"
		case allowed != "" && allowed != allows: // an earlier version did not store it
			return name + " finds other targets unhealthy, asks another remediator, or has another limit"
		}
	}
	return ""
}

// scopeKeeper compares the scope of this start with that of the one before, and stores it.
// Only the deciding goroutine uses it.
type scopeKeeper struct {
	opt    Options
	stored bool // this process has stored its scope
}

// startQuiet begins a quiet period if the start, or a reload that adds the cluster, needs one. It
// returns the events of the start. Without stored state it is not known what the daemon could act on before, nor
// whether the cluster was armed. // I16, I18
func (k *scopeKeeper) startQuiet(started time.Time) (events []event.Event) {
	stored := k.opt.Stop.Record(k.opt.Name)
	from := times.Later(stored.ResumedAt, k.opt.Stop.Record(state.AllClusters).ResumedAt)
	if stored.Armed {
		from = times.Later(from, stored.ArmedAt)
	}
	if k.opt.Mode == guard.ModeObserve && stored.Version == 0 {
		events = append(events, event.Event{Type: event.Internal, Reason: reason.Observing,
			Message: "the store has no record of this cluster: fenced only observes it, even if it was armed before; run fencectl arm to let fenced act"})
	}
	why := whyEnlarged(stored.Scope, scopeOf(k.opt))
	if why == "" && k.opt.Added {
		why = "the cluster was added by a reload"
	}
	if why != "" {
		from = times.Later(from, started)
		if stored.Version != 0 && k.opt.Limits.Now().Guards.QuietPeriod > 0 {
			events = append(events, event.Event{Type: event.Internal, Reason: reason.QuietPeriod,
				Message: "fenced may act on more than before (" + why + "): the quiet period begins"})
		}
	}
	k.opt.View.BeQuiet(from)
	return events
}

// scopeRetry is the pause after the scope could not be stored.
const scopeRetry = time.Minute

// save stores the scope once in each process, after the quiet period with a complete view,
// so that the next start with the same scope needs no quiet period. due is when to call it
// again although nothing happens in the cluster; zero: never.
func (k *scopeKeeper) save(ctx context.Context, now time.Time) (due time.Time, err error) {
	if !k.opt.Lead.Leads() || k.opt.Stop.Corrupt() != "" { // only the owner saves, and only over a record that it can read
		return time.Time{}, nil
	}
	quietUntil := k.opt.View.QuietUntil()
	switch {
	case k.stored:
		return time.Time{}, nil
	case now.Before(quietUntil):
		return quietUntil, nil
	}
	record := k.opt.Stop.Record(k.opt.Name)
	upToDate := record.Version != 0 && whyEnlarged(record.Scope, scopeOf(k.opt)) == "" && whyEnlarged(scopeOf(k.opt), record.Scope) == ""
	if !upToDate {
		if err := k.opt.Stop.Change(ctx, k.opt.Name, func(s *state.Cluster) { s.Scope = scopeOf(k.opt) }); err != nil {
			return now.Add(scopeRetry), err
		}
	}
	k.stored = true
	return time.Time{}, nil
}

// Policies takes in other Files while the cluster is being decided about.
type Policies struct {
	c    *Cluster
	next atomic.Pointer[cluster.Files] // nil: there is nothing to take in
}

// Replace has the deciding goroutine take the Files in between two decisions.
func (p *Policies) Replace(f cluster.Files) {
	p.next.Store(&f)
	p.c.Wake()
}

// replaceFiles begins a quiet period if fenced may act on more with these checks and budgets than with
// those before. The scope is stored again after it. // I18
func (k *scopeKeeper) replaceFiles(f cluster.Files, now time.Time) (events []event.Event) {
	before := scopeOf(k.opt)
	k.opt.Files, k.opt.Budgets, k.stored = f.Checks, f.Budgets, false
	why := whyEnlarged(before, scopeOf(k.opt))
	if why == "" {
		return nil
	}
	k.opt.View.BeQuiet(now)
	if k.opt.Limits.Now().Guards.QuietPeriod > 0 {
		events = append(events, event.Event{Type: event.Internal, Reason: reason.QuietPeriod,
			Message: "after the reload fenced may act on more than before (" + why + "): the quiet period begins"})
	}
	return events
}
