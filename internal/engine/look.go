package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
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
	if !w.c.looks.enter(ctx, w.due(power)) { // not around the BMC, which may hang // L3
		return remediate.Observation{At: time.Now()}, nil, remediate.Backup{}
	}
	defer w.c.looks.leave()
	return w.lookAtCluster(ctx, power, backups, last), backups, last
}

// lookAtCluster reads what comes from the cluster, beside what is known of the rest.
func (w *worker) lookAtCluster(ctx context.Context, power remediate.Observation, backups [][]byte, last remediate.Backup) remediate.Observation {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	at := time.Now()
	fresh := w.c.opt.Kube.Look(ctx, w.run, backups)
	seen := fresh.Observation
	seen.At = at
	w.c.alsoContested(&seen, time.Now())
	seen.Level, seen.Devices, seen.ProofKind = power.Level, power.Devices, power.ProofKind
	seen.Power, seen.PowerError, seen.LevelRefusal = power.Power, power.PowerError, power.LevelRefusal
	seen.Identity, seen.LowerLevelOn = power.Identity, power.LowerLevelOn
	seen.Proof, seen.OffAccepted = power.Proof, power.OffAccepted
	_, frozen := w.c.hosts.Frozen(w.run.Target)
	seen.PowerForbidden = cmp.Or(frozen, w.c.hosts.DuplicateOf(w.run), seen.PowerForbidden) // I5, I9
	seen.Backup, seen.RestoreError = last, w.refused
	seen.PausedReason, seen.PausedWhy = w.stops()
	seen.Paused = seen.PausedWhy != ""
	seen.Clock, seen.ClockSet = w.c.clockAgrees(), w.clock.set(time.Now())
	seen.Justified, seen.Why = w.justified(fresh, seen, at)
	seen.RenamedTo, seen.NodesUnseen = w.c.elsewhere(w.run)
	if w.run.ControlPlane {
		seen.Quorum, seen.QuorumWhy = w.quorum(fresh)
	}
	return seen
}

// lookAround reads what does not come from the cluster, power and store each in a time
// of its own: silent devices may take all of theirs.
func (w *worker) lookAround(ctx context.Context) (power remediate.Observation, backups [][]byte, last remediate.Backup) {
	asking, cancel := context.WithTimeout(ctx, lookTimeout)
	power = w.lookPower(asking)
	cancel()
	loading, cancel := context.WithTimeout(ctx, lookTimeout)
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
		saved, err := state.Backups(ctx, w.c.lead.Store(), w.run.ID)
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

// quorum asks afresh whether etcd survives the loss of the host; what cannot be
// read is no answer. // I12
func (w *worker) quorum(f Fresh) (remediate.Answer, string) {
	code, why := w.c.quorum(w.run, f)
	switch code {
	case "":
		return remediate.Yes, ""
	case reason.QuorumUnknown:
		return remediate.CannotTell, ""
	}
	return remediate.No, why
}

// justified judges the fresh objects with the check's own rules. A person's
// order justifies itself. // I4
func (w *worker) justified(f Fresh, seen remediate.Observation, now time.Time) (remediate.Answer, string) {
	t := w.run.Target
	switch {
	case w.run.Manual != nil && !w.run.Intervened && age(w.run.Manual.At, now) > orderFresh:
		return remediate.No, "the order is older than " + orderFresh.String() + ", and nothing was done on it; give it again"
	case w.run.Manual != nil:
		return remediate.Yes, ""
	case t.Machine != "" && seen.Machine.Exists == remediate.CannotTell, t.Node != "" && seen.Node.Exists == remediate.CannotTell:
		return remediate.CannotTell, ""
	case t.Machine != "" && (f.Machine == nil || f.Machine.UID != t.MachineUID):
		return remediate.No, "the Machine is gone or was replaced"
	case t.Machine == "" && f.Node == nil:
		return remediate.No, "the Node is gone"
	}
	check, a, synced := w.check()
	doubt, claimed := w.claimed(f)
	switch {
	case !synced:
		return remediate.CannotTell, ""
	case claimed != "":
		return remediate.No, "Machine " + claimed + " has claimed the Node since"
	case check == nil:
		return remediate.No, "the check is gone"
	case !check.Covers(f.Machine, f.Node):
		return remediate.No, "the check does not select it any more"
	}
	if check.ClusterName != "" { // else nothing of the Cluster API is asked
		if f.Cluster == nil && a.Cluster != nil {
			return remediate.CannotTell, ""
		}
		a.Cluster = f.Cluster
	}
	found := policy.Evaluate(check, a, policy.Subject{
		Machine: f.Machine, Node: f.Node, Gone: f.Node == nil && seen.Node.Exists == remediate.No, Lease: f.Lease,
		Doubt: doubt, Requests: w.requests(check), ReadsOff: evident(seen),
	}, now)
	switch {
	case found.Verdict != policy.Unhealthy:
		return remediate.No, "the target is " + string(found.Verdict) + " now: " + found.Message
	case strategyOf(check, &found) != w.run.Strategy:
		return remediate.No, "the check asks for something else now"
	case !acts(check, &found):
		return remediate.No, fmt.Sprintf("refused now: %v", found.Refusals)
	}
	return remediate.Yes, ""
}

// orderFresh is for how long a person's order to fence counts while nothing was done on it:
// whoever gave it an hour ago may not want it any more.
const orderFresh = 10 * time.Minute

// age is how long ago that was, also where this host was suspended meanwhile.
func age(at, now time.Time) time.Duration {
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

// evident says whether the host's own BMC reads Off; what others say shortens no
// wait.
func evident(s remediate.Observation) bool {
	return s.Level == 0 && s.ProofKind == remediate.ProofBMC && s.Power.State == bmc.Off && s.Identity == remediate.Yes
}

// claimed says whether the fresh Machine and Node may not belong together, and
// which Machine has turned up for the Node of a run that has none.
func (w *worker) claimed(f Fresh) (doubt policy.Doubt, by string) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if m := w.c.ledger.MachineOf(w.run.Target.Node); m != nil && w.run.Target.Machine == "" {
		by = m.Key()
	}
	return w.c.ledger.Doubt(f.Machine, f.Node), by
}

// requests are those for the run's target, under the name that the check knows
// it by.
func (w *worker) requests(check *policy.Check) []*policy.Request {
	name := w.run.Target.Machine
	if check.SelectsNodes {
		name = w.run.Target.Node
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.c.ledger.Requests(name)
}

// check finds the run's check in the present view, and what it is judged amid.
func (w *worker) check() (*policy.Check, policy.CheckContext, bool) {
	if !w.c.view().Synced {
		return nil, policy.CheckContext{}, false
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if !w.c.judged { // after a start the ledger knows only the checks from files
		return nil, policy.CheckContext{}, false
	}
	for _, r := range w.c.ledger.Counters() {
		c := w.c.ledger.Check(r.ID())
		if c != nil && w.asked(c) {
			return c, w.c.ledger.CheckContext(c), true
		}
	}
	return nil, policy.CheckContext{}, true
}

// asked says whether a check is the run's. Older records, which name no kind, are
// from a version that knew only OpenShift's.
func (w *worker) asked(c *policy.Check) bool {
	if w.run.CheckID == "" {
		return c.APIVersion == policy.OpenShiftMachineAPI && c.Key() == w.run.Check
	}
	return checkID(c.ID()) == w.run.CheckID
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

// alsoContested adds other installations of fenced to the remediators that a look
// found. // I22
func (c *cluster) alsoContested(s *remediate.Observation, now time.Time) {
	answer, who := c.lead.Contested(now)
	switch {
	case answer == remediate.Yes, answer == remediate.CannotTell && s.Contested == remediate.No:
		s.Contested, s.Contender = answer, who
	}
}
