package run

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
)

// Bounds of one action.
const (
	actTimeout     = 15 * time.Second
	writeTimeout   = 45 * time.Second // an API server may wait half a minute for a webhook
	restoreTimeout = 3 * time.Minute  // of up to four writes
)

// writeCheck is how often fenced checks, while a destructive write is in progress, whether its
// conditions still hold. A proof stays fresh for longer than that and one read.
const writeCheck = time.Second

const maxRefusal = 500 // bytes of why a Node could not be restored

// act performs one action. It does not believe the outcome: the next look shows it.
func (w *worker) act(ctx context.Context, d decision) {
	a := d.action
	if a.Destructive() && w.forbidden() != "" {
		return
	}
	if a == remediate.SetPowerLock || a == remediate.SendOff && !d.seen.OffAccepted { // whoever asked may begin while its request says that nothing is done // I22
		w.r.opt.Cluster.TellRequests(ctx, w.run)
	}
	if !w.announce(a, d.seen) {
		return
	}
	if a.Destructive() {
		var why string
		if d, why = w.lastMoment(ctx, d); why != "" {
			w.emitNotDone(a, why)
			return
		}
	}
	ctx, cancel := w.actContext(ctx, a)
	defer cancel()
	ctx, end, why := w.r.opt.Lead.Bound(ctx, a.Destructive())
	if why != "" { // I19, I22
		w.emitNotDone(a, why)
		return
	}
	defer end()
	var err error
	switch a {
	case remediate.SendOff:
		err = w.power.send(ctx, w.run, bmc.CommandOff)
	case remediate.SendOn:
		err = w.power.send(ctx, w.run, bmc.CommandOn)
	case remediate.BackupNode:
		err = w.backups.save(ctx, w.r.opt.Kube, w.run.Target)
	case remediate.IsolateNode, remediate.ReleasePods:
		if !w.power.proven(w.run, d.seen) { // saving took time // I1
			w.emitNotDone(a, "the proof of off grew old")
			return
		}
		err = w.writeWhileAllowed(ctx, d)
	case remediate.SetPowerLock, remediate.DeleteTargetMachine:
		err = w.writeWhileAllowed(ctx, d)
	case remediate.RestoreTargetNode:
		var keys []string
		keys, err = w.r.opt.Kube.Restore(ctx, w.run, d.backups)
		w.restored = restored{nodeUID: w.run.NewNodeUID, keys: keys, refusal: refusalText(err)}
	default:
		err = w.r.opt.Kube.Act(ctx, w.run, a, d.backups, d.backup)
	}
	if err != nil {
		w.emit(event.Event{Type: event.Failed, Action: a, Reason: failureReason(d.seen, err), Message: err.Error()})
	}
}

// restored is what the API server answered to the last attempt to restore the Node.
type restored struct {
	nodeUID string
	keys    []string // that were read back
	refusal string   // why it failed; "" if it did not
}

// refusalText is a refusal of the API server as a record keeps it. An admission webhook may have
// written its text.
func refusalText(err error) string {
	if err == nil {
		return ""
	}
	return bmc.Printable(err.Error(), maxRefusal)
}

// writeWhileAllowed does a destructive write to the cluster. Until the API server answers, it
// checks the conditions of the write again and again: an API server that waits for a webhook may
// carry the write out half a minute later. If a condition no longer holds, it cuts the write
// off. // I1, I4, I23, I26
func (w *worker) writeWhileAllowed(ctx context.Context, d decision) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	run, done, checked := w.run, make(chan error, 1), time.Now() // lastMoment has just checked
	go func() { done <- w.r.opt.Kube.Act(ctx, run, d.action, d.backups, d.backup) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(writeCheck):
		}
		began := time.Now()
		why := w.whyCutOff(ctx, d, checked)
		if checked = began; why == "" {
			continue
		}
		cut()
		if err := <-done; err != nil {
			return fmt.Errorf("action %s of Node %s: cut off, for %s: %w", d.action, run.Target.Node, why, err)
		}
		return nil // the API server had carried it out
	}
}

// whyCutOff returns why a write in progress must be cut off. It is "" if nothing contradicts it.
// checked is when nothing last did: what is known may be as old as a proof.
func (w *worker) whyCutOff(ctx context.Context, d decision, checked time.Time) string {
	why := w.forbidden()
	switch {
	case why != "":
		return why
	case d.action == remediate.ReleasePods, d.action == remediate.IsolateNode && !w.run.IsolatesOnConfirmation():
		return w.power.proofLost(ctx)
	}
	checking, cancel := context.WithDeadline(ctx, checked.Add(power.ProofMaxAge))
	defer cancel()
	if why := w.power.finalRead(checking, w.run, d.action); why != "" {
		return why
	}
	seen := w.lookAtCluster(checking, d.seen, d.backups, d.backup)
	if seen.API != remediate.APIReachable || checking.Err() != nil {
		return "the cluster did not say in time whether something speaks against it"
	}
	if d.action == remediate.IsolateNode {
		return remediate.ContradictsConfirmation(w.run, seen)
	}
	if _, action, _ := remediate.Next(d.from, seen, time.Now()); action != d.action {
		return "a fresh look asks for something else"
	}
	return ""
}

// actContext bounds one action. The end of ctx does not interrupt it, unless it is a restore,
// which can take long and continues at the next start.
func (w *worker) actContext(ctx context.Context, a remediate.Action) (context.Context, context.CancelFunc) {
	timeout := writeTimeout
	switch a {
	case remediate.RestoreTargetNode:
		return context.WithTimeout(ctx, restoreTimeout)
	case remediate.BackupNode:
		timeout = actTimeout
	case remediate.SendOff, remediate.SendOn:
		timeout = w.power.sendTimeout()
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
