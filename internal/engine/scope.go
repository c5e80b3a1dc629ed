package engine

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
func scopeOf(o ClusterOptions) state.Scope {
	s := state.Scope{Mode: o.Mode, Checks: map[string]string{}}
	for i := range o.FileChecks {
		check := &o.FileChecks[i]
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

// quietFrom is when the quiet period of a start begins, and what is to be told of the
// start. Without state nobody knows what went on before, or whether it was armed. // I16, I18
func (c *cluster) quietFrom(resumed time.Time) (from time.Time, told []event.Event) {
	stored := c.record()
	if c.opt.Mode == guard.ModeObserve && stored.Version == 0 {
		told = append(told, event.Event{Type: event.Internal, Reason: reason.Observing,
			Message: "there is no state of this cluster: it is observed until fencectl arm, whatever it was before"})
	}
	why := enlarged(stored.Scope, scopeOf(c.opt))
	if why == "" {
		return resumed, told
	}
	if stored.Version != 0 && c.e.opt.Guards.QuietPeriod > 0 {
		told = append(told, event.Event{Type: event.Internal, Reason: reason.QuietPeriod,
			Message: "more may be acted on than before (" + why + "): the quiet period begins"})
	}
	return later(resumed, c.e.started), told
}

// scopeRetry is the pause after the scope could not be stored.
const scopeRetry = time.Minute

// rememberScope stores, once in each process and after the quiet period, that this
// cluster was seen whole with this scope: the next start need not be quiet. due is when
// to call it again, although nothing happens in the cluster; zero = never.
func (c *cluster) rememberScope(ctx context.Context, now time.Time) (due time.Time, err error) {
	if !c.lead.Leads() || c.e.stop.Corrupt() != "" { // the owner does, when it knows what it writes over
		return time.Time{}, nil
	}
	c.mu.Lock()
	kept, quiet := c.scopeKept, c.quiet
	c.mu.Unlock()
	stored := c.record()
	known := stored.Version != 0 && enlarged(stored.Scope, scopeOf(c.opt)) == "" && enlarged(scopeOf(c.opt), stored.Scope) == ""
	switch {
	case kept:
		return time.Time{}, nil
	case now.Before(quiet):
		return quiet, nil
	}
	if !known {
		if err := c.e.stop.Change(ctx, c.opt.Name, func(s *state.Cluster) { s.Scope = scopeOf(c.opt) }); err != nil {
			return now.Add(scopeRetry), err
		}
	}
	c.mu.Lock()
	c.scopeKept = true
	c.mu.Unlock()
	return time.Time{}, nil
}
