package admit

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
)

// A Waiting run whose pause is over begins step 1 again only if every gate passes that a new run
// must pass: the guards, the limits, the check. It gets the order of a person who retries, given
// by fenced itself. The run then reads all preconditions again, as it does for a person.

// resumer lets the Waiting runs of a cluster go on.
type resumer struct {
	c       *Cluster
	refused *refusals
}

// consider considers every Waiting run that is due. It returns when to consider them again;
// zero: after the next change.
func (w *resumer) consider(now time.Time) (due time.Time) {
	c, live := w.c, map[pair]bool{}
	for _, r := range c.model.Runs.Due() {
		a := c.model.Objects.CandidateForRetry(r)
		a.Protected = c.opt.Hosts.Protected(r.Target) // I13
		live[pair{target: a.Key}] = true
		g, refused := cluster.FirstFailing(c.gates(a, nil, now))
		if !refused {
			g, refused = cluster.FirstFailing(c.model.StillAsked(a, now))
		}
		if refused {
			w.note(a, g, now)
			due = times.Sooner(due, recheckAt(g, now))
			continue
		}
		leadership := c.opt.Lead.Enter()
		if leadership == nil {
			continue
		}
		c.model.Runs.BeginRetry(r.ID)
		leadership.Go(func(ctx context.Context) {
			defer c.model.Runs.EndRetry(r.ID)
			w.resume(ctx, a)
			select { // the run begins, or is considered again
			case <-ctx.Done():
			case <-time.After(gateRetry):
				c.Wake()
			}
		})
		leadership.Leave()
	}
	w.refused.endAllBut(live, func(Refused) progress { return running }, now)
	return times.Sooner(due, w.refused.tell(now))
}

// resume asks the gates again, with fresh reads of the cluster, takes a slot and gives the order.
// Identity and power of the host are read by the run itself.
func (w *resumer) resume(ctx context.Context, a cluster.Candidate) {
	c, r := w.c, a.Draft
	p := c.probes.lookForContenders(ctx, r)
	now := time.Now()
	if g, refused := cluster.FirstFailing(c.gates(a, p, now)); refused {
		w.note(a, g, now)
		w.refused.tell(now)
		return
	}
	slots := c.opt.Slots.Count()
	if err := c.model.ReserveRetry(a, slots, c.runs.releasedAt(r.Target, p.look.Fresh), now); err != nil {
		w.reportError(a, err)
		return
	}
	counted := r
	counted.Manual = nil // fenced's own order waits for a free slot
	err := c.TakeSlot(ctx, counted)
	if err == nil {
		o := wire.Order{Cluster: c.opt.Name, Actor: remediate.SelfActor, Reason: "it waited for " + string(r.Reason)}
		_, err = c.Order(ctx, r.ID, o, "retries", func(r remediate.Run) (remediate.Run, error) {
			if r.Step != remediate.Waiting || !r.Wait.Due {
				return r, &reason.Refusal{Reason: reason.OrderRefused, Message: "the run is not due any more"}
			}
			r.Retry = o.ForRecord()
			return r, nil
		})
	}
	if err != nil {
		w.reportError(a, err)
	}
}

// note stores why a Waiting run does not go on.
func (w *resumer) note(a cluster.Candidate, g reason.Gate, now time.Time) {
	r := a.Draft
	w.refused.note(pair{target: a.Key}, Refused{
		CheckID: r.CheckID, Node: r.Target.Node, Machine: r.Target.MachineKey(), Run: r.ID, Gate: g, NextTry: nextTry(g, now),
	}, now)
}

func (w *resumer) reportError(a cluster.Candidate, err error) {
	if r, ok := reason.AsRefusal(err); ok { // other errors were reported where they occurred
		now := time.Now()
		w.note(a, startGate(r), now)
		w.refused.tell(now)
	}
}
