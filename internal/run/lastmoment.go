package run

import (
	"context"
	"reflect"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// actFresh is how old a look may be when a destructive action is done on it. remediate.Next
// checks the same, but saving and recording take time after that. // I4
const actFresh = 2 * time.Second

// decision is an action and what it was decided on.
type decision struct {
	action  remediate.Action
	from    remediate.Run // the record before it
	seen    remediate.Observation
	backups [][]byte // the saved Nodes
	backup  remediate.Backup
}

// forbidden returns why nothing destructive may be done now, whatever was observed. It is "" if
// it may.
func (w *worker) forbidden() string {
	if why := w.stopped(); why != "" { // I23
		return why
	}
	_, frozen := w.r.opt.Hosts.Frozen(w.run.Target) // I5
	return frozen
}

// stopped returns why the run must stop before anything destructive. An order of a person binds
// the very next write. // I13, I23
func (w *worker) stopped() string {
	if w.inbox.hasOrders() {
		return "an order has come"
	}
	_, why := w.stopReason()
	return why
}

// stopReason returns why the run must stop before anything destructive. code is "" for a pause
// or a hold. // I13, I16, I23
func (w *worker) stopReason() (code reason.Code, why string) {
	if why := w.r.opt.Stop.Why(w.r.opt.Name, w.names...); why != "" {
		return "", why
	}
	if _, why := w.r.opt.Cluster.Clock(); why != "" {
		return reason.ClockSkew, why
	}
	return w.r.opt.Hosts.OffLimits(w.run)
}

// lastMoment checks, when all is saved and recorded, whether a destructive action may still be
// done. why is "" if it may. If saving took long, a fresh look must ask for the same action on
// the record as it was; then the action is done on that look. // I1, I4
func (w *worker) lastMoment(ctx context.Context, d decision) (last decision, why string) {
	if w.isStale(d) {
		if d, why = w.decideAgain(ctx, d); why != "" {
			return d, why
		}
	}
	if why := w.recheckHost(ctx, d); why != "" {
		return d, why
	}
	if why := w.power.finalRead(ctx, w.run, d.action); why != "" {
		return d, why
	}
	if why := w.forbidden(); why != "" {
		return d, why
	}
	if why := w.unasked(d.action); why != "" {
		return d, why
	}
	if w.isStale(d) {
		return d, "what it was decided on grew old"
	}
	return d, ""
}

// unasked returns why an action that begins something may not be done although it was decided:
// somebody has disarmed the cluster since. What isolates a host that is off brings it back. // I4
func (w *worker) unasked(a remediate.Action) string {
	switch a {
	case remediate.SendOff, remediate.SetPowerLock, remediate.DeleteTargetMachine:
		if w.run.Confirmed == nil {
			return w.r.opt.Cluster.ModeForbids(w.run)
		}
	}
	return ""
}

// recheckHost returns why a host must not be switched off although the machine was identified:
// there is a duplicate by now, or the BareMetalHost now leads to another BMC, whose owner would
// carry out the power lock there. Every Off is checked: a record that has begun one does not
// say that it was sent. // I9, I10
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

// decideAgain returns the same decision on a fresh look. why says that the fresh look leads to
// another decision.
func (w *worker) decideAgain(ctx context.Context, d decision) (again decision, why string) {
	again = decision{from: d.from}
	again.seen, again.backups, again.backup = w.look(ctx)
	if ctx.Err() != nil { // the look was interrupted, so it proves nothing
		return d, "it took long, and is to stop"
	}
	now := time.Now()
	next, action, _ := remediate.Next(d.from, again.seen, now)
	if action == d.action && sameExceptTime(next, w.run) {
		again.action = action
		return again, ""
	}
	next, _, _ = remediate.Next(w.run, again.seen, now)
	w.pending.note(w.run, next) // its reason may not be observed again // I5, I26
	return d, "it took long, and a fresh look asks for something else"
}

// isStale reports whether what an action was decided on is too old: the proof of off, if the
// action needs one, and for all but the isolation the look. // I1, I4
func (w *worker) isStale(d decision) bool {
	if needsProof(d.action) && !w.power.proven(w.run, d.seen) {
		return true
	}
	return d.action != remediate.IsolateNode && time.Since(d.seen.At) > actFresh
}

// needsProof reports whether the host must be proven off until the action is done. // I1
func needsProof(a remediate.Action) bool {
	return a == remediate.IsolateNode || a == remediate.ReleasePods
}

// sameExceptTime reports whether two records of one decision differ only in its time.
func sameExceptTime(a, b remediate.Run) bool {
	a.Version, a.StepStarted, a.Intent.At = b.Version, b.StepStarted, b.Intent.At
	return reflect.DeepEqual(a, b)
}
