package engine

import (
	"context"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

var errNoSession = errors.New("no session with the BMC")

// look reads everything Next may ask about: the BMC, then the cluster, so that
// the Lease is younger than the power reading. What could not be read stays
// unknown.
func (w *worker) look(ctx context.Context) (remediate.Seen, [][]byte, remediate.Backup) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	power := w.lookPower(ctx)
	backups, last := w.backups(ctx)
	at := time.Now()
	fresh := w.c.opt.Kube.Look(ctx, w.run, backups)
	seen := fresh.Seen
	seen.At = at
	seen.Power, seen.PowerError, seen.Identity = power.Power, power.PowerError, power.Identity
	seen.Proof, seen.OffAccepted = power.Proof, power.OffAccepted
	seen.Backup = last
	seen.Paused = w.c.e.paused(w.c) != ""
	seen.Justified, seen.Why = w.justified(fresh, at)
	return seen, backups, last
}

// lookPower reads the BMC; the session is opened when there is none yet.
func (w *worker) lookPower(ctx context.Context) (seen remediate.Seen) {
	if w.run.Strategy != remediate.PowerCycle {
		return seen
	}
	if s := w.session; s != nil && s.refusal != nil && time.Now().After(s.barred) {
		w.dropSession(ctx) // the credentials may have been mended meanwhile
	}
	if w.session == nil {
		if err := w.open(ctx); err != nil {
			w.emit(Event{Type: EventFailed, Reason: string(hostReason(err)), Message: err.Error()})
			seen.PowerError = bmc.KindOf(err)
			return seen
		}
	}
	r, err := w.session.read(ctx)
	seen.Power, seen.PowerError = r, bmc.KindOf(err)
	if err == nil {
		t := w.run.Target
		seen.Identity = identify(w.session.host, r.Identity, t.SystemUUID, w.c.pin(ctx, w.session.host), w.run.Manual != nil)
	}
	seen.Proof, seen.OffAccepted = w.session.proof, w.session.accepted
	return seen
}

func (w *worker) dropSession(ctx context.Context) {
	w.session.close(ctx)
	w.session = nil
}

// open finds the host again after a restart and opens its BMC.
func (w *worker) open(ctx context.Context) error {
	h, err := w.c.host(ctx, w.run.Target)
	if err != nil {
		return err
	}
	p, err := w.c.e.opt.Open(h)
	if err != nil {
		return err
	}
	w.session = newSession(h, p, w.c.e.opt.Power)
	return nil
}

// backups gives the saved Nodes of this run, and which one is the newest; nil
// when they could not be read, which is not the same as none.
func (w *worker) backups(ctx context.Context) ([][]byte, remediate.Backup) {
	saved, err := state.Backups(ctx, w.c.e.opt.Store, w.run.ID)
	if err != nil {
		w.emit(Event{Type: EventFailed, Message: "read the backups of the Node: " + err.Error()})
		return nil, remediate.Backup{}
	}
	all := make([][]byte, 0, len(saved))
	var last remediate.Backup
	for _, b := range saved {
		all = append(all, b.Node)
		last = remediate.Backup{UID: b.NodeUID, ResourceVersion: b.ResourceVersion}
	}
	return all, last
}

// justified judges the fresh objects with the check's own rules. A person's
// order justifies itself. // I4
func (w *worker) justified(f Fresh, now time.Time) (remediate.Answer, string) {
	if w.run.Manual != nil {
		return remediate.Yes, ""
	}
	if f.Seen.Machine.Exists == remediate.CannotTell || f.Seen.Node.Exists == remediate.CannotTell && w.run.Target.Node != "" {
		return remediate.CannotTell, ""
	}
	if f.Machine == nil || f.Machine.UID != w.run.Target.MachineUID {
		return remediate.No, "the Machine is gone or was replaced"
	}
	check, synced := w.check()
	switch {
	case !synced:
		return remediate.CannotTell, ""
	case check == nil:
		return remediate.No, "the check is gone"
	case check.Paused || check.Invalid != "" || check.Disabled != "":
		return remediate.No, "the check is paused or cannot be evaluated"
	}
	t := policy.Judge(check, policy.Surroundings{}, policy.Subject{Machine: f.Machine, Node: f.Node, Gone: f.Node == nil && f.Seen.Node.Exists == remediate.No}, now)
	if t.Verdict == policy.Unhealthy {
		return remediate.Yes, ""
	}
	return remediate.No, "the target is " + string(t.Verdict) + " now: " + t.Message
}

// check finds the run's check in the present view.
func (w *worker) check() (*policy.Check, bool) {
	if !w.c.opt.Watch.View().Synced {
		return nil, false
	}
	snap := w.c.opt.Watch.Snapshot()
	for _, list := range [][]policy.Check{snap.Checks, w.c.opt.FileChecks} {
		for i := range list {
			if list[i].Namespace+"/"+list[i].Name == w.run.Check {
				return &list[i], true
			}
		}
	}
	return nil, true
}

func failureReason(seen remediate.Seen, err error) string {
	if e, ok := errors.AsType[*bmc.Error](err); ok {
		return "BMC" + string(e.Kind)
	}
	if seen.API == remediate.APIForbidden {
		return "APIForbidden"
	}
	return ""
}
