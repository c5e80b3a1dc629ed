package engine

import (
	"context"
	"maps"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Checks is where the checks of one cluster live: what fenced found is told
// there as the lineage's own controller would.
type Checks interface {
	// Judged says whether the controller that judges checks of this kind in the
	// cluster is alive, by a read past every cache.
	Judged(ctx context.Context, id policy.CheckID) (remediate.Answer, error)
	// WriteStatus changes what differs in the status of one check.
	WriteStatus(ctx context.Context, r policy.CheckReport) error
	// Record adds one Kubernetes Event to a check.
	Record(ctx context.Context, r policy.CheckReport, warning bool, code, message string) error
}

const (
	tellEvery   = time.Second      // between two writes to one check
	tellRetry   = 10 * time.Second // after one that failed, doubled each time
	tellSlowest = 5 * time.Minute
	judgedFresh = 15 * time.Second // age of the answer whether a judge is alive
)

// The reasons of Events on a check, as the lineages call them.
const (
	remediationRestricted = "RemediationRestricted"
	remediationAllowed    = "RemediationAllowed"
)

// statusWriter writes back what the checks found. It has a goroutine of its own, so
// that a slow API never delays a decision.
type statusWriter struct {
	c           *cluster
	written     map[checkKey]written
	controllers map[string]controller // by kind of check
}

// checkKey tells a check from another one of the same name that took its place.
type checkKey struct {
	id  policy.CheckID
	uid string
}

// written is what was last written about one check.
type written struct {
	status  status
	next    time.Time // no write before
	seen    bool
	allowed bool
	// failed is how long the next attempt is put off; zero when the last one went well.
	failed time.Duration
}

// status is what a write-back tells.
type status struct {
	uid, message                 string
	expected, healthy, max, more int
	allowed                      bool
}

// controller says whether what judges a kind of check in the cluster is alive.
type controller struct {
	alive remediate.Answer
	at    time.Time
}

// tell asks the status writer to look for what has changed.
func (c *cluster) tell() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (t *statusWriter) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.c.news:
		case <-timer.C:
		}
		timer.Stop()
		if due := t.round(ctx, time.Now()); !due.IsZero() {
			timer.Reset(max(time.Millisecond, time.Until(due)))
		}
	}
}

// round tells what is new. It returns when there is more to tell.
func (t *statusWriter) round(ctx context.Context, now time.Time) (due time.Time) {
	if t.c.e.stop.Paused(t.c.opt.Name) != "" {
		return time.Time{} // the end of a pause is told
	}
	foreign := t.c.lead.WhyNotAct(now) // whoever acts tells
	acts := t.c.admit.Armed() && foreign == ""
	found, _ := t.c.book.Counters()
	t.forget(found)
	if !acts {
		return time.Time{}
	}
	for i := range found {
		if ctx.Err() != nil {
			return time.Time{}
		}
		r := &found[i]
		key := checkKey{r.ID(), r.UID}
		last := t.written[key]
		is := status{r.UID, r.Message, r.Expected, r.Healthy, r.MaxUnhealthy, r.RemediationsAllowed, r.Allowed}
		switch {
		case r.State != policy.StateActive || r.Kind != policy.MachineHealthCheckKind || r.UID == "": // from a file
		case last.status == is:
		case now.Before(last.next):
			due = earliest(due, last.next)
		case !t.ours(ctx, r.ID(), now):
			due = earliest(due, now.Add(judgedFresh))
		default:
			t.written[key] = t.write(ctx, r, is, last, now)
			due = earliest(due, t.written[key].next)
		}
	}
	return due
}

// forget drops what was told about checks that are gone.
func (t *statusWriter) forget(found []policy.CheckReport) {
	there := map[checkKey]bool{}
	for i := range found {
		there[checkKey{found[i].ID(), found[i].UID}] = true
	}
	maps.DeleteFunc(t.written, func(k checkKey, _ written) bool { return !there[k] })
}

// ours says whether nobody in the cluster judges this check: the controller is
// not alive, or the check was handed over to this instance.
func (t *statusWriter) ours(ctx context.Context, id policy.CheckID, now time.Time) bool {
	check := t.c.book.Check(id)
	if check == nil {
		return false
	}
	if check.Paused && check.Evaluator != "" { // an evaluated check that is paused is ours
		return true
	}
	kind := check.APIVersion + " " + check.Kind
	j, ok := t.controllers[kind]
	if !ok || now.Sub(j.at) >= judgedFresh {
		alive, err := t.c.opt.Checks.Judged(ctx, id)
		if err != nil {
			alive = remediate.CannotTell
		}
		j = controller{alive, now}
		t.controllers[kind] = j
	}
	return j.alive == remediate.No
}

// write tells one check's status, and an Event when its limit was passed.
func (t *statusWriter) write(ctx context.Context, r *policy.CheckReport, is status, last written, now time.Time) written {
	next := written{status: is, next: now.Add(tellEvery), seen: true, allowed: r.Allowed}
	full := t.c.withTargets(*r, now)
	err := t.c.opt.Checks.WriteStatus(ctx, full)
	if err == nil && last.seen && last.allowed != r.Allowed {
		code, message := remediationAllowed, "not more targets are unhealthy than the limit allows"
		if !r.Allowed {
			code, message = remediationRestricted, r.Message
		}
		err = t.c.opt.Checks.Record(ctx, full, !r.Allowed, code, message)
	}
	if err != nil && ctx.Err() == nil {
		if last.failed == 0 { // told once, until it goes well again
			t.c.emit(event.Event{Type: event.Failed, Message: "tell what check " + r.Namespace + "/" + r.Name + " found: " + err.Error()})
		}
		last.failed = min(max(2*last.failed, tellRetry), tellSlowest)
		last.next = now.Add(last.failed)
		return last
	}
	return next
}

// withTargets adds the targets, for the one lineage whose status names them.
func (c *cluster) withTargets(r policy.CheckReport, now time.Time) policy.CheckReport {
	if r.APIVersion == policy.OpenShiftMachineAPI {
		return r
	}
	if full, ok := c.book.WithTargets(r.ID(), now); ok {
		return full
	}
	return r
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
