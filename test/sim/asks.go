package sim

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// asker is a controller in the cluster that finds sick Machines and asks fenced to power-cycle
// them: one FencedRemediation for each, deleted when the Node is Ready again. It also changes its
// mind in mid-run, and asks anew. Guarded by the world's mutex.
type asker struct {
	silent  map[string]time.Time // by host: it does not ask before
	deleted map[string]time.Time // by UID
	told    map[string]time.Time // by UID: when a request was first seen answered
	lost    map[string]bool      // by UID: fenced says that it does not know the run that held it
}

func newAsker() asker {
	return asker{silent: map[string]time.Time{}, deleted: map[string]time.Time{}, told: map[string]time.Time{}, lost: map[string]bool{}}
}

// answeredFor is how long an answered request stays if its Node does not become Ready.
const answeredFor = 2 * time.Minute

// tickAsks lets the controller look at every host. w.mu is held.
func (w *World) tickAsks(now time.Time) {
	if !w.plan.Requests {
		return
	}
	for _, h := range w.hosts {
		name := "m-" + h.Name
		q := w.api.Asked[name]
		switch {
		case q == nil && w.needsHelp(h, now):
			w.api.Ask(name, nil)
			w.note(h.Name, "request %s asks for it", w.api.Asked[name].UID)
			w.outcome.Actions["requests"]++
		case q != nil && !q.Deleting:
			w.mayWithdraw(h, q, now)
		}
	}
}

// needsHelp says whether the controller asks for a host. w.mu is held.
func (w *World) needsHelp(h *host, now time.Time) bool {
	if h.Gone || w.api.Machines[h.Name] == nil || now.Before(w.asks.silent[h.Name]) {
		return false
	}
	n := w.api.Nodes[h.Name]
	if n == nil {
		return !w.plan.Forgets || w.calm // in the calm a person asks for what was forgotten
	}
	return n.Ready != "True" && now.Sub(n.Since) > map[string]time.Duration{"Unknown": unknownFor, "False": falseFor}[n.Ready]
}

// mayWithdraw deletes a request that is no longer needed, and in the storm one that is, or gives
// it up. w.mu is held.
func (w *World) mayWithdraw(h *host, q *policy.Request, now time.Time) {
	n, answered := w.api.Nodes[h.Name], q.Power.Answered()
	if answered && w.asks.told[q.UID].IsZero() {
		w.asks.told[q.UID] = now
	}
	changes := !w.calm && !answered && w.rng.Float64() < w.plan.Withdraws/3600
	switch {
	case w.api.Machines[h.Name] == nil, n != nil && n.Ready == "True" && !changes:
		w.withdraw(h, q, 0)
	case n == nil && w.plan.Forgets && !w.calm:
		w.outcome.Actions["requests deleted with their Node"]++
		w.withdraw(h, q, 0)
	case w.calm && !q.TimedOut.IsZero() && now.Sub(q.TimedOut) > answeredFor: // it asks anew: nobody has repaired the host
		w.withdraw(h, q, 0)
	case answered && now.Sub(w.asks.told[q.UID]) > answeredFor:
		w.withdraw(h, q, between(w.rng, time.Second, 3*time.Minute))
	case changes && w.rng.IntN(3) == 0 && q.TimedOut.IsZero():
		w.fault("request-given-up", h.Name, "%s", q.UID)
		w.api.ChangeRequest(q.Name, func(q *policy.Request) { q.TimedOut = now })
	case changes:
		w.fault("request-withdrawn", h.Name, "%s", q.UID)
		w.withdraw(h, q, between(w.rng, 0, 8*time.Minute))
	}
}

// withdraw deletes a request; the controller does not ask again for a while. w.mu is held.
func (w *World) withdraw(h *host, q *policy.Request, silent time.Duration) {
	w.note(h.Name, "request %s is deleted", q.UID)
	w.asks.silent[h.Name] = time.Now().Add(silent)
	w.asks.deleted[q.UID] = time.Now()
	w.api.Withdraw(q.Name)
}

// requests is what one fenced writes to the requests; it implements engine.Requests. A write may
// be lost, or carried out without an answer.
type requests struct{ kube }

// SetFinalizer implements engine.Requests.
func (r requests) SetFinalizer(ctx context.Context, ref remediate.Request, run string) error {
	w := r.inc.i.w
	return r.exchange(ctx, "hold", func(s *fake.State) error {
		if w.defect.HoldsNoRequests {
			return nil
		}
		return s.HoldRequest(ref, run)
	})
}

// TemplateAttempts implements engine.Requests: no check of the simulation has a template of fenced.
func (requests) TemplateAttempts(context.Context, *policy.Check, policy.Template, remediate.Target) (int, error) {
	return 0, nil
}

// RemoveFinalizer implements engine.Requests.
func (r requests) RemoveFinalizer(ctx context.Context, ref remediate.Request, heldBy string) error {
	return r.exchange(ctx, "release", func(s *fake.State) error {
		r.inc.i.w.auditReleased(r.inc, ref)
		s.ReleaseRequest(ref, heldBy)
		return nil
	})
}

// Report implements engine.Requests.
func (r requests) Report(ctx context.Context, ref remediate.Request, told request.Status) error {
	return r.exchange(ctx, "report", func(s *fake.State) error {
		r.inc.i.w.auditReported(r.inc, ref, told)
		r.inc.i.w.asks.lost[ref.UID] = told.Lost
		s.ReportRequest(ref, told)
		return nil
	})
}

// ClearStale implements engine.Requests.
func (r requests) ClearStale(ctx context.Context, t remediate.Target) (removed bool, err error) {
	err = r.exchange(ctx, "clear", func(s *fake.State) error { removed = s.ClearStaleRequest(t); return nil })
	return removed, err
}
