package run

import (
	"context"
	"reflect"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// actFresh is how old what was seen may be when something that hurts is done on it:
// Next asks the same, but saving and recording take their time after that. // I4
const actFresh = 2 * time.Second

// decision is an action and what it was decided on.
type decision struct {
	action  remediate.Action
	from    remediate.Run // the record before it
	seen    remediate.Observation
	backups [][]byte
	backup  remediate.Backup
}

// forbidden says why nothing that hurts may be done now, whatever was seen.
func (w *worker) forbidden() string {
	if why := w.stopped(); why != "" { // I23
		return why
	}
	_, frozen := w.r.opt.Hosts.Frozen(w.run.Target) // I5
	return frozen
}

// stopped says why nothing that hurts may be done: what people want binds the very
// next write. // I13, I23
func (w *worker) stopped() string {
	if w.inbox.waiting() {
		return "an order has come"
	}
	_, why := w.stops()
	return why
}

// stops says why the run is to stop before anything that hurts, and with what reason if
// it is not a pause or a hold. // I13, I16, I23
func (w *worker) stops() (code reason.Code, why string) {
	if why := w.r.opt.Stop.Why(w.r.opt.Name, w.run.Target.Node); why != "" {
		return "", why
	}
	if _, why := w.r.opt.Cluster.Clock(); why != "" {
		return reason.ClockSkew, why
	}
	return w.r.opt.Hosts.OffLimits(w.run)
}

// lastMoment asks, when all is saved and recorded, whether a thing that hurts may still
// be done. If that took long, a fresh look must ask for the very same on the record as
// it was: then that is what it is done on. // I1, I4
func (w *worker) lastMoment(ctx context.Context, d decision) (last decision, why string) {
	if w.aged(d) {
		if d, why = w.reconsidered(ctx, d); why != "" {
			return d, why
		}
	}
	if why := w.recheckHost(ctx, d); why != "" {
		return d, why
	}
	if why := w.lastWord(ctx, d); why != "" {
		return d, why
	}
	if why := w.forbidden(); why != "" {
		return d, why
	}
	if w.aged(d) {
		return d, "what it was decided on grew old"
	}
	return d, ""
}

// recheckHost says why a host must not be switched off although the machine was identified:
// it is there twice by now, or the BareMetalHost leads elsewhere, whose owner carries
// out the power lock at any address. Every Off is asked: that the record has one begun does
// not say that it was given. // I9, I10
func (w *worker) recheckHost(ctx context.Context, d decision) string {
	switch d.action {
	case remediate.SetPowerLock:
		if _, err := w.r.opt.Hosts.FindBare(ctx, w.run.Target); err != nil {
			return reason.Sentence(err)
		}
		fallthrough
	case remediate.SendOff:
		return w.r.opt.Hosts.DuplicateOf(w.run)
	}
	return ""
}

// reconsidered is the same decision on a fresh look, or says that it would be another one.
func (w *worker) reconsidered(ctx context.Context, d decision) (again decision, why string) {
	again = decision{from: d.from}
	again.seen, again.backups, again.backup = w.look(ctx)
	if ctx.Err() != nil { // a look cut short says nothing
		return d, "it took long, and is to stop"
	}
	now := time.Now()
	next, action, _ := remediate.Next(d.from, again.seen, now)
	if action == d.action && alike(next, w.run) {
		again.action = action
		return again, ""
	}
	next, _, _ = remediate.Next(w.run, again.seen, now)
	w.missed(next) // it may not be seen again // I5, I26
	return d, "it took long, and a fresh look asks for something else"
}

// aged says whether what an action rests on is too old: the proof of off for the
// isolation, the look for all else that hurts. // I1, I4
func (w *worker) aged(d decision) bool {
	if d.action == remediate.IsolateNode {
		return !w.proven(d.seen)
	}
	return time.Since(d.seen.At) > actFresh
}

// alike says whether two records of a decision differ in nothing but its time.
func alike(a, b remediate.Run) bool {
	a.Version, a.StepStarted, a.Intent.At = b.Version, b.StepStarted, b.Intent.At
	return reflect.DeepEqual(a, b)
}
