package admit

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// allRuns are the runs, and what other remediators were asked as if it were runs: the limits count
// both. The runs are not copied: that would be thousands for each candidate. b.mu is held. // I11, I15
func (b handoverBook) allRuns() runs {
	all := b.runs
	if len(b.asked) == 0 {
		return all
	}
	all.others = map[string]*remediate.Run{}
	for id, r := range b.asked {
		for i := range r.Objects {
			run := asRun(&r, i)
			all.others[run.ID] = &run
		}
		if r.Unreadable != "" {
			all.others[id] = &remediate.Run{ID: id, Version: r.Version, Target: r.Target, ControlPlane: r.MayBeControlPlane(), Strategy: remediate.PowerCycle, Step: remediate.Waiting}
		}
	}
	return all
}

// asRun is an object as if it were a run that acts on the host. Only the newest object of a record may
// still exist; it has the ID of the record. // I15
func asRun(r *escalate.Record, i int) remediate.Run {
	o, newest := r.Objects[i], i == len(r.Objects)-1
	run := remediate.Run{ID: r.ID, Version: r.Version, Target: r.Target, ControlPlane: r.ControlPlane, TakesNoTurn: r.TakesNoTurn, NodeLabels: r.Labels, NodeNames: r.Names,
		Started: o.Made, Strategy: remediate.PowerCycle, Attempt: 1, Intervened: true, Step: remediate.Aborted, Ended: o.Gone}
	switch {
	case !newest:
		run.ID = fmt.Sprintf("%s/%d", r.ID, i)
	case !r.Blocking():
		if run.Ended = times.Later(o.Gone, r.Ended); r.Recovered && o.TimedOut.IsZero() {
			run.Step = remediate.Done
		}
	case r.Idle.IsZero():
		run.Step, run.Ended = remediate.PowerOff, time.Time{}
	default: // it stays open, and has no place in flight
		run.Step, run.Ended = remediate.Waiting, time.Time{}
	}
	return run
}

// history collects what has acted on the host of a candidate, the newest first. While a check goes
// through its escalation, the objects of its other templates do not count: their number and their
// times are those that the author of the check chose, each comes once, and a default of three a day
// would end an escalation of four. Afterwards all of them count. b.mu is held. // I15
func (b handoverBook) history(a candidate, releasedAt time.Time) history {
	all := b.allRuns()
	for _, r := range b.asked {
		if a.check == nil || a.template == nil || len(a.check.Escalation) == 0 || !r.Ended.IsZero() || r.Check != a.check.Mark() || !r.Target.Overlaps(a.draft.Target) {
			continue
		}
		for i, o := range r.Objects {
			if !o.Gone.IsZero() && !o.IsFrom(*a.template) {
				delete(all.others, asRun(&r, i).ID)
			}
		}
	}
	return all.history(a.draft.Target, b.stableUntil[a.draft.Target.Node], releasedAt)
}
