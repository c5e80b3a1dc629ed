package admit

import (
	"cmp"
	"context"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Escalation asks other remediators for the targets whose gates have passed; package escalate does. It gets each
// candidate that would be asked for, and keeps it until it is refused, or considered no more.
type Escalation interface {
	// Consider takes a candidate whose gates have passed, or have not. It returns the gate that a candidate which has
	// passed still waits for; without a Name if nothing is known.
	Consider(a cluster.Candidate, t *policy.TargetReport, passed bool, now time.Time) (waits reason.Gate)
	// KeepOnly forgets the candidates that were not considered now.
	KeepOnly(considered func(check, target string) bool)
	// Gates returns for explain and plan what a target waits for after its gates have passed.
	Gates(t remediate.Target, now time.Time) []reason.Gate
	// Run asks until ctx ends. Changed says that a round of decisions is over.
	Run(ctx context.Context) error
	Changed()
	// Any says whether an object that fenced made may exist.
	Any() bool
}

// NoEscalation asks nobody.
type NoEscalation struct{}

func (NoEscalation) Consider(cluster.Candidate, *policy.TargetReport, bool, time.Time) (none reason.Gate) {
	return none
}
func (NoEscalation) KeepOnly(func(check, target string) bool)        {}
func (NoEscalation) Gates(remediate.Target, time.Time) []reason.Gate { return nil }
func (NoEscalation) Run(context.Context) error                       { return nil }
func (NoEscalation) Changed()                                        {}
func (NoEscalation) Any() bool                                       { return false }

// Asking is the admission of a cluster for what asks other remediators there.
type Asking struct{ c *Cluster }

// AskingIn returns the admission of a cluster.
func AskingIn(c *Cluster) Asking { return Asking{c} }

// Wake requests a decision soon.
func (k Asking) Wake() { k.c.Wake() }

// Armed says whether fenced acts in the cluster on what its checks find.
func (k Asking) Armed() bool { return k.c.Armed() }

// TakeSlot takes a slot for a power cycle by another remediator.
func (k Asking) TakeSlot(ctx context.Context, r remediate.Run) error { return k.c.takeSlot(ctx, r) }

// consider evaluates the gates of a target for which a check asks another remediator. It returns when to do that
// again.
func (k Asking) consider(ctx context.Context, check *policy.Check, t *policy.TargetReport, now time.Time) time.Time {
	a, ok := k.c.candidate(check, t)
	if !ok {
		return time.Time{}
	}
	gates := k.c.gates(a, nil, now)
	k.c.OwnHost.note(a, gates, now)
	g, refused := cluster.FirstFailing(gates)
	if waits := k.c.Escalation.Consider(a, t, !refused, now); !refused {
		g = waits
	}
	if g.Name != "" {
		k.c.noteRefusal(a, g, nextTry(g, now), now)
	}
	if refused {
		k.c.quarantineIfOverLimit(ctx, a, g, now)
		return recheckAt(g, now)
	}
	return now.Add(gateRetry)
}

// Options returns the options of the cluster.
func (k Asking) Options() Options { return k.c.opt }

// Record makes an event durable before what it announces is done. // I24
func (k Asking) Record(ev event.Event) (event.Event, error) { return k.c.runs.Record(ev) }

// Refusal evaluates the gates of a candidate once more. An error is a *reason.Refusal.
func (k Asking) Refusal(a cluster.Candidate, now time.Time) error {
	if g, refused := cluster.FirstFailing(k.c.gates(a, nil, now)); refused {
		return reason.RefusalOf(g)
	}
	return nil
}

// ReleasedAt is when a person last released the host of a target.
func (k Asking) ReleasedAt(t remediate.Target) time.Time {
	return k.c.opt.Stop.ReleasedAt(k.c.opt.Name, k.c.runs.Names(t, run.Fresh{})...)
}

// WhyNotWrite returns a *reason.Refusal if people have stopped what is done for a target, or if this instance may not
// act. // I23
func (k Asking) WhyNotWrite(t remediate.Target) error {
	if why := k.c.opt.Stop.Paused(k.c.opt.Name); why != "" {
		return &reason.Refusal{Reason: reason.Paused, Message: why}
	}
	if why := k.c.opt.Stop.Held(k.c.opt.Name, k.c.runs.Names(t, run.Fresh{})...); why != "" {
		return &reason.Refusal{Reason: reason.Hold, Message: why}
	}
	if why := k.c.opt.Lead.WhyNotAct(time.Now()); why != "" {
		return &reason.Refusal{Reason: reason.NotOwner, Message: why}
	}
	return nil
}

// Confirm asks with fresh reads whether the check of a candidate still wants another remediator to be asked, and
// whether somebody else is at work. Every object for the target counts, whoever made it. An error is
// a *reason.Refusal. // I4, I22
func (k Asking) Confirm(ctx context.Context, a cluster.Candidate) error {
	r := a.Draft
	r.Strategy = remediate.DeleteMachine // what is read of a target without its BMC
	began := time.Now()
	f := k.c.opt.Kube.Look(ctx, r, nil)
	f.Observation.At = began
	answer, why := k.c.runs.askedFresh(a, f, f.Observation, time.Now())
	switch {
	case f.Err != nil:
		return &reason.Refusal{Reason: reason.RequestFailed, Message: "read the target before the request: " + f.Err.Error()}
	case answer != remediate.Yes:
		return &reason.Refusal{Reason: reason.NotUnhealthy, Message: cmp.Or(why, "the target could not be read")}
	case f.Observation.Contested != remediate.No:
		return &reason.Refusal{Reason: reason.Contested, Message: cmp.Or(f.Observation.Contender, "whether another remediator is alive could not be read")}
	}
	if r.ControlPlane {
		if code, detail := k.c.runs.Quorum(r, f); code != "" {
			return &reason.Refusal{Reason: code, Message: detail}
		}
	}
	return nil
}
