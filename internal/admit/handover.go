package admit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Ask is one target for which another remediator is to be asked.
type Ask struct {
	Check  *policy.Check
	Target policy.TargetReport
	// Run is the run that it would be if fenced carried it out itself: it names the target.
	Run remediate.Run
	// Template is what the object is made from.
	Template policy.Template

	candidate cluster.Candidate
	at        time.Time // when its gates last passed
}

// Handovers lets other remediators be asked to repair targets, and keeps the records of that: the
// deciding loop evaluates the gates of each target, and the caller of Wanted does the I/O.
type Handovers struct {
	c       *Cluster
	records cluster.Records

	// writing is held from the change of a record in the Model until it is known what the store has. The
	// deciding loop never takes it.
	writing *semaphore.Weighted

	mu sync.Mutex
	// wanted are the targets whose gates have passed.
	wanted map[pair]Ask
	// problems are why the last step for a Node or Machine was not done, until when they are told.
	problems map[string]problem
	// missing and ignored say by the mark of a check why nobody carries out its requests; disabled
	// is both, as the ledger knows it.
	missing, ignored, disabled map[string]string
}

type problem struct {
	gate  reason.Gate
	until time.Time
}

// wantedFor is for how long the gates of a target count as passed.
const wantedFor = 2 * gateRetry

func newHandovers(c *Cluster) *Handovers {
	return &Handovers{c: c, records: cluster.Records{Model: c.model}, writing: semaphore.NewWeighted(1), wanted: map[pair]Ask{}, problems: map[string]problem{}}
}

// consider evaluates the gates of a target for which a check asks another remediator. It returns
// when to do that again.
func (h *Handovers) consider(ctx context.Context, check *policy.Check, t *policy.TargetReport, now time.Time) time.Time {
	a, ok := h.c.candidate(check, t)
	if !ok {
		return time.Time{}
	}
	key := pair{a.Draft.CheckID, a.Key}
	gates := h.c.gates(a, nil, now)
	h.c.OwnHost.note(a, gates, now)
	g, refused := cluster.FirstFailing(gates)
	h.mu.Lock()
	delete(h.wanted, key)
	if !refused {
		h.wanted[key] = Ask{Check: check, Target: *t, Run: a.Draft, Template: *cmp.Or(t.Template, check.Template), candidate: a, at: now}
		if p := h.problems[cluster.SubjectOf(a.Draft.Target)]; now.Before(p.until) {
			g = p.gate
		}
	}
	h.mu.Unlock()
	if g.Name != "" {
		h.c.noteRefusal(a, g, nextTry(g, now), now)
	}
	if refused {
		h.c.quarantineIfOverLimit(ctx, a, g, now)
		return recheckAt(g, now)
	}
	return now.Add(gateRetry)
}

// dropAllBut forgets what was wanted, except for the targets that were just considered.
func (h *Handovers) dropAllBut(considered map[pair]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.wanted, func(key pair, _ Ask) bool { return !considered[key] })
}

// gate says for explain and plan what a target waits for, after its gates have passed; none
// if nothing is known.
func (h *Handovers) gate(t remediate.Target, now time.Time) []reason.Gate {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range t.Names() {
		if p := h.problems[name]; now.Before(p.until) {
			return []reason.Gate{p.gate}
		}
	}
	return nil
}

// Wanted lists the targets whose gates have just passed.
func (h *Handovers) Wanted(now time.Time) (list []Ask) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, o := range h.wanted {
		if now.Sub(o.at) > wantedFor {
			delete(h.wanted, key)
			continue
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b Ask) int {
		return cmp.Or(strings.Compare(a.Check.Mark(), b.Check.Mark()), strings.Compare(a.Target.Subject(), b.Target.Subject()))
	})
	return list
}

// Note stores why a step for a target was not done, until it is tried again; an empty reason: it
// was done.
func (h *Handovers) Note(t remediate.Target, check string, why reason.Code, message string, now, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, p := range h.problems {
		if !now.Before(p.until) {
			delete(h.problems, name)
		}
	}
	for _, name := range t.Names() {
		delete(h.problems, name)
		if why != "" {
			h.problems[name] = problem{until: until, gate: reason.Gate{
				Name: "remediator", Reason: why, Value: message, Threshold: "asked for a repair", Source: "check " + check}}
		}
	}
}

// WriteEvent makes the event of a request durable before the request is made. // I24
func (h *Handovers) WriteEvent(ev event.Event) (event.Event, error) { return h.c.runs.Record(ev) }

// Stopped says why nothing may be written about the newest object of a record now: people have stopped
// it or given the record up, or this instance may not act. It is asked before each write. tidies: the target is well, and fenced
// removes what it made; a cluster that was disarmed does not stop that. // I23
func (h *Handovers) Stopped(r escalate.Record, tidies bool) error {
	t := r.Target
	if why := h.c.opt.Stop.Paused(h.c.opt.Name); why != "" {
		return &reason.Refusal{Reason: reason.Paused, Message: why}
	}
	if why := h.c.opt.Stop.Held(h.c.opt.Name, h.c.runs.Names(t, run.Fresh{})...); why != "" {
		return &reason.Refusal{Reason: reason.Hold, Message: why}
	}
	if why := h.c.opt.Lead.WhyNotAct(time.Now()); why != "" {
		return &reason.Refusal{Reason: reason.NotOwner, Message: why}
	}
	if !tidies && !h.c.Armed() {
		return &reason.Refusal{Reason: reason.Observing, Message: "the mode of the cluster is " + h.c.opt.Mode}
	}
	if !h.stands(r) {
		return fmt.Errorf("record %s of another remediator was given up meanwhile", r.ID)
	}
	return nil
}

// Confirm asks with fresh reads whether the check still wants another remediator to be asked, and
// whether somebody else is at work. Every object for the target counts, whoever made it. An error is
// a *reason.Refusal. // I4, I22
func (h *Handovers) Confirm(ctx context.Context, o Ask) error {
	r := o.Run
	r.Strategy = remediate.DeleteMachine // what is read of a target without its BMC
	began := time.Now()
	f := h.c.opt.Kube.Look(ctx, r, nil)
	f.Observation.At = began
	answer, why := h.c.runs.askedFresh(o.candidate, f, f.Observation, time.Now())
	switch {
	case f.Err != nil:
		return &reason.Refusal{Reason: reason.RequestFailed, Message: "read the target before the request: " + f.Err.Error()}
	case answer != remediate.Yes:
		return &reason.Refusal{Reason: reason.NotUnhealthy, Message: cmp.Or(why, "the target could not be read")}
	case f.Observation.Contested != remediate.No:
		return &reason.Refusal{Reason: reason.Contested, Message: cmp.Or(f.Observation.Contender, "whether another remediator is alive could not be read")}
	}
	if r.ControlPlane {
		if code, detail := h.c.runs.Quorum(r, f); code != "" {
			return &reason.Refusal{Reason: code, Message: detail}
		}
	}
	return nil
}

// Makers lists the checks whose requests fenced makes, to look for their templates.
func (h *Handovers) Makers() []policy.Check { return h.records.Makers() }

// SetMissing stores why the templates of checks cannot be used, by the mark of the check. These
// checks are Disabled.
func (h *Handovers) SetMissing(why map[string]string, now time.Time) {
	h.disable(now, func() { h.missing = maps.Clone(why) })
}

// SetIgnored stores the checks whose requests nobody begins, by the mark of the check.
func (h *Handovers) SetIgnored(why map[string]string, now time.Time) {
	h.disable(now, func() { h.ignored = maps.Clone(why) })
}

// disable makes a change, tells the ledger, and requests a decision if that changes a check. Two
// goroutines call it: the lock is kept until the ledger knows, so that it has the newer of two changes.
func (h *Handovers) disable(now time.Time, change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	all := map[string]string{}
	maps.Copy(all, h.ignored)
	maps.Copy(all, h.missing)
	if maps.Equal(all, h.disabled) {
		return
	}
	h.disabled = all
	h.records.SetDisabled(all, now)
	h.c.Wake()
}

// CheckName names a check in events.
func CheckName(c *policy.Check) string { return cluster.CheckID(c.ID()) }
