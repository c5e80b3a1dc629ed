package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// templateWatch looks for the templates of the checks whose requests fenced makes.
type templateWatch struct {
	c *cluster
	// looked is when the templates were looked for; missing is what was found.
	looked  time.Time
	missing map[string]string
}

const (
	// templatesEvery is how often the templates of the checks are looked for; at most maxMakers
	// checks in one round.
	templatesEvery = 15 * time.Second
	maxMakers      = 50
)

// look looks for the templates of all checks whose requests fenced makes. What cannot
// be read keeps its last answer.
func (w *templateWatch) look(ctx context.Context, now time.Time) {
	if now.Sub(w.looked) < templatesEvery {
		return
	}
	w.looked = now
	found := map[string]string{}
	for i, check := range w.c.admit.Handovers.Makers() {
		if ctx.Err() != nil {
			return
		}
		if i >= maxMakers {
			found[check.Mark()] = fmt.Sprintf("fenced asks other remediators for %d checks at most", maxMakers)
			continue
		}
		if why := w.missingOf(ctx, &check); why != "" {
			found[check.Mark()] = why
		}
	}
	w.missing = found
	w.c.admit.Handovers.SetMissing(found, now)
}

// missingOf says why nobody can carry out the requests of a check.
func (w *templateWatch) missingOf(ctx context.Context, check *policy.Check) string {
	for _, t := range check.Templates() {
		if t.IsOwn() {
			continue // no request is made from it
		}
		why, err := w.c.opt.Handovers.Missing(ctx, check, t)
		if err != nil {
			return w.missing[check.Mark()]
		}
		if why != "" {
			return why
		}
	}
	return ""
}
