package admit

import (
	"cmp"
	"context"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Escalation asks other remediators for the targets whose gates have passed; package escalate does. It gets each
// candidate that would be asked for, and keeps it until it is refused, or considered no more.
type Escalation interface {
	// Consider takes a candidate whose gates have passed, or have not. It returns the gate that a candidate which has
	// passed still waits for; without a Name if nothing is known.
	Consider(a cluster.Candidate, passed bool, now time.Time) (waits reason.Gate)
	// KeepOnly ends a round of decisions: it forgets the candidates that were not considered in it.
	KeepOnly(considered func(check, target string) bool)
	// Gates returns for explain and plan what a target waits for after its gates have passed.
	Gates(t remediate.Target, now time.Time) []reason.Gate
	// Run asks until ctx ends.
	Run(ctx context.Context) error
}

// NoEscalation asks nobody.
type NoEscalation struct{}

func (NoEscalation) Consider(cluster.Candidate, bool, time.Time) (none reason.Gate) { return none }
func (NoEscalation) KeepOnly(func(check, target string) bool)                       {}
func (NoEscalation) Gates(remediate.Target, time.Time) []reason.Gate                { return nil }
func (NoEscalation) Run(context.Context) error                                      { return nil }

// What follows is the admission of a cluster for what asks other remediators there.

// Record makes an event durable before what it announces is done. // I24
func (c *Cluster) Record(ev event.Event) (event.Event, error) { return c.runs.Record(ev) }

// MayReserve evaluates the gates of a candidate once more. It returns when a person last released its host. An error is a
// *reason.Refusal.
func (c *Cluster) MayReserve(a cluster.Candidate, now time.Time) (releasedAt time.Time, err error) {
	if g, refused := cluster.FirstFailing(c.gates(a, nil, now)); refused {
		return releasedAt, reason.RefusalOf(g)
	}
	return c.runs.releasedAt(a.Draft.Target, run.Fresh{}), nil
}

// WhyNotWrite returns a *reason.Refusal if people have stopped what is done for a target, or if this instance may not
// act. // I23
func (c *Cluster) WhyNotWrite(t remediate.Target) error {
	if why := c.opt.Stop.Paused(c.opt.Name); why != "" {
		return &reason.Refusal{Reason: reason.Paused, Message: why}
	}
	if why := c.opt.Stop.Held(c.opt.Name, c.runs.Names(t, run.Fresh{})...); why != "" {
		return &reason.Refusal{Reason: reason.Hold, Message: why}
	}
	if why := c.opt.Lead.WhyNotAct(time.Now()); why != "" {
		return &reason.Refusal{Reason: reason.NotOwner, Message: why}
	}
	return nil
}

// Confirm asks with fresh reads whether the check of a candidate still wants another remediator to be asked, and
// whether somebody else is at work. Every object for the target counts, whoever made it. An error is
// a *reason.Refusal. // I4, I22
func (c *Cluster) Confirm(ctx context.Context, a cluster.Candidate) error {
	r := a.Draft
	r.Strategy = remediate.DeleteMachine // what is read of a target without its BMC
	began := time.Now()
	f := c.opt.Kube.Look(ctx, r, nil)
	f.Observation.At = began
	answer, why := c.runs.askedFresh(a, f, f.Observation, time.Now())
	switch {
	case f.Err != nil:
		return &reason.Refusal{Reason: reason.RequestFailed, Message: "read the target before the request: " + f.Err.Error()}
	case answer != remediate.Yes:
		return &reason.Refusal{Reason: reason.NotUnhealthy, Message: cmp.Or(why, "the target could not be read")}
	case f.Observation.Contested != remediate.No:
		return &reason.Refusal{Reason: reason.Contested, Message: cmp.Or(f.Observation.Contender, "whether another remediator is alive could not be read")}
	}
	if r.ControlPlane {
		if code, detail := c.runs.Quorum(r, f); code != "" {
			return &reason.Refusal{Reason: code, Message: detail}
		}
	}
	return nil
}
