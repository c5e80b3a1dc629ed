package run

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

var errNoSession = errors.New("no session with the BMC")

// look reads everything Next may ask about: the BMC, then the cluster, so that
// the Lease is younger than the power reading. What could not be read stays
// unknown.
func (w *worker) look(ctx context.Context) (remediate.Observation, [][]byte, remediate.Backup) {
	power, backups, last := w.lookAround(ctx)
	if !w.r.looks.enter(ctx, w.due(power)) { // not around the BMC, which may hang // L3
		return remediate.Observation{At: time.Now()}, nil, remediate.Backup{}
	}
	defer w.r.looks.leave()
	return w.lookAtCluster(ctx, power, backups, last), backups, last
}

// lookAtCluster reads what comes from the cluster, beside what is known of the rest.
func (w *worker) lookAtCluster(ctx context.Context, power remediate.Observation, backups [][]byte, last remediate.Backup) remediate.Observation {
	ctx, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	at := time.Now()
	fresh := w.r.opt.Kube.Look(ctx, w.run, backups)
	seen := fresh.Observation
	seen.At = at
	w.r.alsoContested(&seen, time.Now())
	seen.Level, seen.Devices, seen.ProofKind = power.Level, power.Devices, power.ProofKind
	seen.Power, seen.PowerError, seen.LevelRefusal = power.Power, power.PowerError, power.LevelRefusal
	seen.Identity, seen.LowerLevelOn = power.Identity, power.LowerLevelOn
	seen.Proof, seen.OffAccepted = power.Proof, power.OffAccepted
	_, frozen := w.r.opt.Hosts.Frozen(w.run.Target)
	seen.PowerForbidden = cmp.Or(frozen, w.r.opt.Hosts.DuplicateOf(w.run), seen.PowerForbidden) // I5, I9
	seen.Backup, seen.RestoreError = last, w.refused
	seen.PausedReason, seen.PausedWhy = w.stops()
	seen.Paused = seen.PausedWhy != ""
	agrees, _ := w.r.opt.Cluster.Clock()
	seen.Clock, seen.ClockSet = agrees, w.clock.set(time.Now())
	seen.Justified, seen.Why = w.r.opt.Cluster.Justified(w.run, fresh, seen, at)
	seen.RenamedTo, seen.NodesUnseen = w.r.opt.Cluster.RenamedTo(w.run)
	if w.run.ControlPlane {
		seen.Quorum, seen.QuorumWhy = w.quorum(fresh)
	}
	return seen
}

// lookAround reads what does not come from the cluster, power and store each in a time
// of its own: silent devices may take all of theirs.
func (w *worker) lookAround(ctx context.Context) (power remediate.Observation, backups [][]byte, last remediate.Backup) {
	asking, cancel := context.WithTimeout(ctx, LookTimeout)
	power = w.lookPower(asking)
	cancel()
	loading, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	backups, last = w.backups(loading)
	return power, backups, last
}

// due is when a look at the cluster should be. A proof of off grows old, so a run that
// has begun one goes before others.
func (w *worker) due(power remediate.Observation) time.Time {
	proving := w.run.Step == remediate.PowerOff || w.run.Step == remediate.DeleteNode
	if proving && power.OffAccepted && power.Power.State == bmc.Off {
		return time.Now()
	}
	return time.Now().Add(unhurried)
}

// backups gives the saved Nodes of this run, and which one is the newest; nil
// when they could not be read, which is not the same as none.
func (w *worker) backups(ctx context.Context) ([][]byte, remediate.Backup) {
	if w.saved == nil { // nobody else writes them: the store is not asked at each look
		saved, err := state.Backups(ctx, w.r.opt.Lead.Store(), w.run.ID)
		if err != nil {
			w.emit(event.Event{Type: event.Failed, Message: "read the backups of the Node: " + err.Error()})
			return nil, remediate.Backup{}
		}
		w.saved = append([]state.Backup{}, saved...)
	}
	all := make([][]byte, 0, len(w.saved))
	var last remediate.Backup
	for _, b := range w.saved {
		all = append(all, b.Node)
		last = remediate.Backup{UID: b.NodeUID, ResourceVersion: b.ResourceVersion}
	}
	return all, last
}

func failureReason(seen remediate.Observation, err error) reason.Code {
	if e, ok := errors.AsType[*bmc.Error](err); ok {
		return reason.OfBMC(string(e.Kind))
	}
	if seen.API == remediate.APIForbidden {
		return reason.APIForbidden
	}
	return ""
}

// quorum asks afresh whether etcd survives the loss of the host; what cannot be
// read is no answer. // I12
func (w *worker) quorum(f Fresh) (remediate.Answer, string) {
	code, why := w.r.opt.Cluster.Quorum(w.run, f)
	switch code {
	case "":
		return remediate.Yes, ""
	case reason.QuorumUnknown:
		return remediate.CannotTell, ""
	}
	return remediate.No, why
}

// alsoContested adds other installations of fenced to the remediators that a look
// found. // I22
func (r *Runner) alsoContested(s *remediate.Observation, now time.Time) {
	answer, who := r.opt.Lead.Contested(now)
	switch {
	case answer == remediate.Yes, answer == remediate.CannotTell && s.Contested == remediate.No:
		s.Contested, s.Contender = answer, who
	}
}
