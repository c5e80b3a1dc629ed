package run

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// admittedFor is how long after it began the look that admitted a run is also the first look of
// the run. It is about as long as a look may take by itself. What is done on it must still be
// younger than actFresh, as with any look. // I4
const admittedFor = 250 * time.Millisecond

// Admitted is the look at the cluster with which a run was admitted.
type Admitted struct {
	Fresh Fresh
	At    time.Time // when it began
}

// look reads everything that remediate.Next may need. It reads the BMC before the cluster, so
// that the Lease is younger than the power reading. What cannot be read stays unknown.
func (w *worker) look(ctx context.Context) (remediate.Observation, [][]byte, remediate.Backup) {
	power, nodes, last := w.lookAtPowerAndStore(ctx)
	var seen remediate.Observation
	if a := w.takeAdmitted(); a != nil {
		seen = w.observe(a.Fresh, a.At, power, last)
	} else {
		queue := w.lookQueue()
		if !queue.enter(ctx, w.lookDue(power)) { // the BMC is read outside of the queue, because it may hang // L3
			return remediate.Observation{At: time.Now()}, nil, remediate.Backup{}
		}
		seen = w.lookAtCluster(ctx, power, nodes, last)
		queue.leave()
	}
	w.lockNode(ctx, &seen)
	return seen, nodes, last
}

// lookQueue is where the run waits for its turn to look at the cluster.
func (w *worker) lookQueue() *queue {
	if w.run.Step == remediate.Reprovision && w.run.Intent.Action == remediate.DeleteTargetMachine {
		return w.r.deleted
	}
	return w.r.looks
}

// takeAdmitted returns the look that admitted the run, once, if the run may begin with it. A host
// that is switched off, a member of the control plane and what a person orders are looked at
// again: they depend on more than the Machine. // I4, I12
func (w *worker) takeAdmitted() *Admitted {
	a := w.admitted
	w.admitted = nil
	r := &w.run
	if a == nil || r.Strategy != remediate.DeleteMachine || r.ControlPlane || r.Manual != nil || a.Fresh.Err != nil || time.Since(a.At) > admittedFor {
		return nil
	}
	return a
}

// lookAtPowerAndStore reads what does not come from the cluster. Power and store each have a
// time of their own: silent devices may use up all of theirs.
func (w *worker) lookAtPowerAndStore(ctx context.Context) (power remediate.Observation, nodes [][]byte, last remediate.Backup) {
	reading, cancel := context.WithTimeout(ctx, LookTimeout)
	power, err := w.power.look(reading, w.run)
	cancel()
	if err = cmp.Or(err, w.power.readError); ctx.Err() == nil { // otherwise the read was interrupted
		w.powerFailure.report(w, hosts.ReasonOf(err), err)
	}
	loading, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	if nodes, last, err = w.backups.read(loading); err != nil {
		w.emit(event.Event{Type: event.Failed, Message: "read the backups of the Node: " + err.Error()})
	}
	return power, nodes, last
}

// lookAtCluster reads the cluster, and adds it to what is known about power and store. nodes are
// the saved Nodes, nil if they could not be read.
func (w *worker) lookAtCluster(ctx context.Context, power remediate.Observation, nodes [][]byte, last remediate.Backup) remediate.Observation {
	ctx, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	at := time.Now()
	return w.observe(w.r.opt.Kube.Look(ctx, w.run, nodes), at, power, last)
}

// observe adds what is known now to a look at the cluster that began at a time.
func (w *worker) observe(fresh Fresh, at time.Time, power remediate.Observation, last remediate.Backup) remediate.Observation {
	seen := fresh.Observation
	seen.At = at
	if fresh.NoNodeLocks {
		w.lock.noteNone(at)
	}
	w.clusterFailure.report(w, lookReason(seen.API), fresh.Err)
	w.r.addContender(&seen, time.Now())
	seen.Level, seen.Devices, seen.ProofKind = power.Level, power.Devices, power.ProofKind
	seen.Power, seen.PowerError, seen.LevelRefusal = power.Power, power.PowerError, power.LevelRefusal
	seen.Identity, seen.LowerLevelOn = power.Identity, power.LowerLevelOn
	seen.Proof, seen.OffAccepted = power.Proof, power.OffAccepted
	_, frozen := w.r.opt.Hosts.Frozen(w.run.Target)
	seen.PowerForbidden = cmp.Or(frozen, w.r.opt.Hosts.DuplicateOf(w.run), seen.PowerForbidden) // I5, I9
	seen.MachineMetal = w.r.opt.Hosts.BareMetalHostOf(fresh.Machine)
	seen.Backup, seen.RestoreError = last, w.restored.refusal
	if seen.Node.UID == w.restored.nodeUID {
		seen.ReadBack = slices.Concat(seen.ReadBack, w.restored.keys)
	}
	names := w.r.opt.Cluster.Names(w.run.Target, fresh)
	if fresh.Err != nil { // it may lack one that the look before had
		names = append(names, w.names...)
		slices.Sort(names)
	}
	w.names = slices.Compact(names)
	seen.PausedReason, seen.PausedWhy = w.stopReason()
	seen.Paused = seen.PausedWhy != ""
	agrees, _ := w.r.opt.Cluster.Clock()
	seen.Clock, seen.ClockSet = agrees, w.clock.unsaved(time.Now())
	seen.Justified, seen.Why = w.r.opt.Cluster.Justified(w.run, fresh, seen, at)
	seen.Withdrawn, seen.WithdrawnWhy = w.r.opt.Cluster.Withdrawn(w.run, fresh, at)
	seen.RenamedTo, seen.NodesUnseen = w.r.opt.Cluster.RenamedTo(w.run)
	if w.run.ControlPlane {
		seen.Quorum, seen.QuorumWhy = w.quorum(fresh)
	}
	return seen
}

// lookDue is when the run's look at the cluster is due. A proof of off does not stay fresh for
// long, so a run that has begun one goes before others.
func (w *worker) lookDue(power remediate.Observation) time.Time {
	proving := w.run.Step == remediate.PowerOff || w.run.Step == remediate.DeleteNode
	if proving && power.OffAccepted && power.Power.State == bmc.Off {
		return time.Now()
	}
	return time.Now().Add(overtakeLimit)
}

// failureReason is the reason code of an action that failed.
func failureReason(seen remediate.Observation, err error) reason.Code {
	if e, ok := errors.AsType[*bmc.Error](err); ok {
		return reason.OfBMC(string(e.Kind))
	}
	if seen.API == remediate.APIForbidden {
		return reason.APIForbidden
	}
	return ""
}

// quorum answers from a fresh look whether etcd survives the loss of the host. If the members
// could not be read, there is no answer. // I12
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

// addContender adds another installation of fenced to the remediators that a look found. // I22
func (r *Runner) addContender(s *remediate.Observation, now time.Time) {
	answer, who := r.opt.Lead.Contested(now)
	switch {
	case answer == remediate.Yes, answer == remediate.CannotTell && s.Contested == remediate.No:
		s.Contested, s.Contender = answer, who
	}
}
