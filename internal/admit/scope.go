package admit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

// scopeOf is what a configuration lets the daemon act on in one cluster.
func scopeOf(o Options) state.Scope {
	s := state.Scope{Mode: o.Mode, Checks: map[string]string{}}
	for i := range o.Files {
		check := &o.Files[i]
		selector := "-"
		if check.Selector != nil {
			selector = check.Selector.String()
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%t %t %s", check.SelectsNodes, check.Paused, selector))
		s.Checks[check.Kind+" "+check.Key()] = hex.EncodeToString(sum[:6])
	}
	return s
}

// enlarged says what the daemon may act on now and could not before; "" when that is
// nothing. // I18
func enlarged(before, now state.Scope) string {
	acts := []string{guard.ModeObserve, guard.ModeRespond, guard.ModeEvaluate} // ever more
	switch {
	case before.Mode == "":
		return "what it was before is not on record"
	case slices.Index(acts, now.Mode) > slices.Index(acts, before.Mode):
		return "mode was " + before.Mode + " and is " + now.Mode
	}
	for _, name := range slices.Sorted(maps.Keys(now.Checks)) {
		switch digest, known := before.Checks[name]; {
		case !known:
			return name + " is new"
		case digest != now.Checks[name]:
			return name + " selects something else"
		}
	}
	return ""
}

// scopeKeeper knows whether a start lets the daemon act on more than the one before. It is
// for the deciding goroutine.
type scopeKeeper struct {
	opt  Options
	kept bool // this process has stored its scope
}

// begin begins the quiet period of a start where it needs one, and gives what is to be
// told of the start. Without state nobody knows what went on before, or whether it was
// armed. // I16, I18
func (k *scopeKeeper) begin(started time.Time) (events []event.Event) {
	stored := k.opt.Stop.Record(k.opt.Name)
	from := later(stored.ResumedAt, k.opt.Stop.Record(state.AllClusters).ResumedAt)
	if k.opt.Mode == guard.ModeObserve && stored.Version == 0 {
		events = append(events, event.Event{Type: event.Internal, Reason: reason.Observing,
			Message: "there is no state of this cluster: it is observed until fencectl arm, whatever it was before"})
	}
	if why := enlarged(stored.Scope, scopeOf(k.opt)); why != "" {
		from = later(from, started)
		if stored.Version != 0 && k.opt.Guards.QuietPeriod > 0 {
			events = append(events, event.Event{Type: event.Internal, Reason: reason.QuietPeriod,
				Message: "more may be acted on than before (" + why + "): the quiet period begins"})
		}
	}
	k.opt.View.BeQuiet(from)
	return events
}

// scopeRetry is the pause after the scope could not be stored.
const scopeRetry = time.Minute

// remember stores, once in each process and after the quiet period, that this cluster was
// seen whole with this scope: the next start need not be quiet. due is when to call it
// again, although nothing happens in the cluster; zero = never.
func (k *scopeKeeper) remember(ctx context.Context, now time.Time) (due time.Time, err error) {
	if !k.opt.Lead.Leads() || k.opt.Stop.Corrupt() != "" { // the owner does, when it knows what it writes over
		return time.Time{}, nil
	}
	quiet := k.opt.View.QuietUntil()
	switch {
	case k.kept:
		return time.Time{}, nil
	case now.Before(quiet):
		return quiet, nil
	}
	stored := k.opt.Stop.Record(k.opt.Name)
	known := stored.Version != 0 && enlarged(stored.Scope, scopeOf(k.opt)) == "" && enlarged(scopeOf(k.opt), stored.Scope) == ""
	if !known {
		if err := k.opt.Stop.Change(ctx, k.opt.Name, func(s *state.Cluster) { s.Scope = scopeOf(k.opt) }); err != nil {
			return now.Add(scopeRetry), err
		}
	}
	k.kept = true
	return time.Time{}, nil
}
