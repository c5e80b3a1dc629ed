package escalate

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/policy"
)

// templateWatch looks for the templates of the checks whose requests fenced makes. It has its own
// goroutine: a webhook or a kind that does not answer delays no request and no deletion of one. Only
// the instance that leads asks; the others neither ask nor decide by it.
type templateWatch struct {
	c       *Cluster
	objects Objects
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

func (w *templateWatch) run(ctx context.Context) error {
	live.Every(ctx, round, nil, func() {
		if time.Since(w.looked) >= templatesEvery && w.c.opt.Lead.Leads() {
			w.look(ctx)
			w.looked = time.Now()
		}
	})
	return nil
}

// look looks for the templates of all checks whose requests fenced makes. Each answer counts at once.
// What cannot be read keeps its last answer.
func (w *templateWatch) look(ctx context.Context) {
	makers, known := w.c.opt.Model.Makers(), map[string]bool{}
	silent := map[kindOfTemplate]bool{}
	for i, check := range makers {
		if ctx.Err() != nil || !w.c.opt.Lead.Leads() {
			return
		}
		known[check.Mark()] = true
		why := fmt.Sprintf("fenced asks other remediators for %d checks at most", maxMakers)
		if i < maxMakers {
			why = w.missingOf(ctx, &check, silent)
		}
		w.set(check.Mark(), why)
	}
	for mark := range maps.Clone(w.missing) {
		if !known[mark] {
			w.set(mark, "")
		}
	}
}

// set stores the answer about a check.
func (w *templateWatch) set(mark, why string) {
	if w.missing[mark] == why {
		return
	}
	if w.missing[mark] = why; why == "" {
		delete(w.missing, mark)
	}
	w.c.setMissing(w.missing, time.Now())
}

type kindOfTemplate struct{ apiVersion, kind string }

// missingOf returns the reason why nobody can carry out the requests of a check, or an empty string. silent are the kinds about which
// nothing could be read in this round: they are not asked about again, so each costs one timeout.
func (w *templateWatch) missingOf(ctx context.Context, check *policy.Check, silent map[kindOfTemplate]bool) string {
	for _, t := range check.Templates() {
		if t.IsOwn() {
			continue // no request is made from it
		}
		kind := kindOfTemplate{t.APIVersion, t.Kind}
		if silent[kind] {
			return w.missing[check.Mark()]
		}
		why, err := w.objects.Missing(ctx, check, t)
		if err != nil {
			silent[kind] = true
			return w.missing[check.Mark()]
		}
		if why != "" {
			return why
		}
	}
	return ""
}
