package admit

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Handover is the next step for one target whose requests fenced makes, and the run that it would
// be if fenced carried it out itself: it names the target.
type Handover struct {
	escalate.Step
	Check  *policy.Check
	Target policy.TargetReport
	Run    remediate.Run

	candidate candidate
	first     bool // no request for the target exists yet
}

// Handovers lets other remediators be asked to repair targets: the deciding loop evaluates the
// gates of each target, and the caller of Steps does the I/O.
type Handovers struct {
	c    *Cluster
	book handoverBook

	mu sync.Mutex
	// allowed is when the gates of a target last passed.
	allowed map[pair]time.Time
	// problems are why the last step for a target was not done, until when they are told.
	problems map[pair]problem
	// missing and ignored say by the mark of a check why nobody carries out its requests; disabled
	// is both, as the ledger knows it.
	missing, ignored, disabled map[string]string
}

type problem struct {
	gate  reason.Gate
	until time.Time
}

// allowedFor is for how long the gates of a target count as passed.
const allowedFor = 2 * gateRetry

func newHandovers(c *Cluster) *Handovers {
	return &Handovers{c: c, book: handoverBook{c.book}, allowed: map[pair]time.Time{}, problems: map[pair]problem{}}
}

// consider evaluates the gates of a target that a check hands over. It returns when to do that
// again.
func (h *Handovers) consider(check *policy.Check, t *policy.TargetReport, now time.Time) time.Time {
	a, ok := h.c.candidate(check, t)
	if !ok {
		return time.Time{}
	}
	key := pair{a.draft.CheckID, a.key}
	g, refused := firstFailing(h.gates(a, now))
	h.mu.Lock()
	delete(h.allowed, key)
	if !refused {
		h.allowed[key] = now
		if p := h.problems[key]; now.Before(p.until) {
			g = p.gate
		}
	}
	h.mu.Unlock()
	if g.Name != "" {
		h.c.noteRefusal(a, g, nextTry(g, now), now)
	}
	if refused {
		return recheckAt(g, now)
	}
	return now.Add(gateRetry)
}

// gates are those of a run that needs no BMC.
func (h *Handovers) gates(a candidate, now time.Time) []reason.Gate { return h.c.gates(a, nil, now) }

// gate says for explain and plan what a target waits for, after its gates have passed; none
// if nothing is known.
func (h *Handovers) gate(a candidate, now time.Time) []reason.Gate {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.problems[pair{a.draft.CheckID, a.key}]; now.Before(p.until) {
		return []reason.Gate{p.gate}
	}
	return nil
}

// Steps lists the next step of each target for which there is one. A request is only created
// where all gates have just passed.
func (h *Handovers) Steps(now time.Time) (list []Handover) {
	if !h.c.view.View().Synced {
		return nil
	}
	disabled := map[string]string{}
	for _, s := range h.book.situations(h.c.opt.StoreID, now) {
		if why := escalate.Ignored(s, now); why != "" {
			disabled[s.Check.Mark()] = cmp.Or(disabled[s.Check.Mark()], why)
		}
		o := Handover{Step: escalate.Next(s, now), Check: s.Check, Target: s.Target, first: len(s.Requests) == 0}
		if o.Do == escalate.Nothing {
			continue
		}
		if s.Target.Action != policy.None && (o.Do == escalate.Create || o.Do == escalate.TimeOut || o.Do == escalate.Wait) {
			a, ok := h.c.candidate(s.Check, &s.Target)
			if !ok || !h.isAllowed(a, now) {
				continue
			}
			o.candidate, o.Run = a, a.draft
		}
		list = append(list, o)
	}
	h.setIgnored(disabled, now)
	return list
}

func (h *Handovers) isAllowed(a candidate, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, at := range h.allowed {
		if now.Sub(at) > allowedFor {
			delete(h.allowed, key)
		}
	}
	_, ok := h.allowed[pair{a.draft.CheckID, a.key}]
	return ok
}

// Note stores why a step was not done, until it is tried again; an empty reason: it was done.
func (h *Handovers) Note(o Handover, why reason.Code, message string, now, until time.Time) {
	if o.candidate.key == "" {
		return
	}
	key := pair{o.candidate.draft.CheckID, o.candidate.key}
	h.mu.Lock()
	defer h.mu.Unlock()
	for other, p := range h.problems {
		if !now.Before(p.until) {
			delete(h.problems, other)
		}
	}
	delete(h.problems, key)
	if why != "" {
		h.problems[key] = problem{until: until, gate: reason.Gate{
			Name: "remediator", Reason: why, Value: message, Threshold: "asked for a repair", Source: "check " + o.Check.Key()}}
	}
}

// Record makes the event of a request durable before the request is made. // I24
func (h *Handovers) Record(ev event.Event) (event.Event, error) { return h.c.runs.Record(ev) }

// CheckName names a check in events.
func CheckName(c *policy.Check) string { return checkID(c.ID()) }

// Reserve keeps runs off the target while its request is created, and then asks with fresh reads
// whether the check still wants the request, and whether somebody else is at work. An error is a
// *reason.Refusal. fenced's own requests need no place: their runs look for others. // I4, I22
func (h *Handovers) Reserve(ctx context.Context, o Handover) error {
	if !o.Template.IsOwn() {
		if err := h.book.reserve(o.Run.Target, time.Now()); err != nil {
			return err
		}
	}
	r := o.Run
	r.Strategy = remediate.DeleteMachine // what is read of a target without its BMC
	f := h.c.opt.Kube.Look(ctx, r, nil)
	now := time.Now()
	check, found, answer, why := h.c.runs.evaluateFresh(r, f, f.Observation, now)
	switch {
	case f.Err != nil:
		return &reason.Refusal{Reason: reason.RequestFailed, Message: "read the target before the request: " + f.Err.Error()}
	case answer != remediate.Yes:
		return &reason.Refusal{Reason: reason.NotUnhealthy, Message: cmp.Or(why, "the target could not be read")}
	case !found.Acts() || !check.HandsOver(&found):
		return &reason.Refusal{Reason: reason.NotUnhealthy, Message: fmt.Sprintf("the check does not ask for the request now: %v", found.Refusals)}
	case o.first && f.Observation.Contested != remediate.No:
		return &reason.Refusal{Reason: reason.Contested, Message: cmp.Or(f.Observation.Contender, "whether another remediator is alive could not be read")}
	}
	if r.ControlPlane {
		if code, detail := h.c.runs.Quorum(r, f); code != "" {
			return &reason.Refusal{Reason: code, Message: detail}
		}
	}
	return nil
}
