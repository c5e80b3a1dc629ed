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

// Time limits of one action, from the request to the answer.
const (
	actTimeout     = 15 * time.Second
	writeTimeout   = 45 * time.Second // an API server may wait half a minute for a webhook
	restoreTimeout = 3 * time.Minute  // of up to four writes
)

// writeCheck is how often it is asked, while a write that hurts is under way, whether what
// it rests on still holds. It and one read together take less time than a proof stays fresh.
const writeCheck = time.Second

const maxRefusal = 500 // bytes of why a Node could not be restored

// act performs one action. Its outcome is not believed: the next look sees it. An action that is
// forbidden by now is left out without an event: the next look shows Next why.
func (w *worker) act(ctx context.Context, d decision) {
	a := d.action
	if a.Destructive() && w.forbidden() != "" || !w.announce(a, d.seen) {
		return
	}
	if a.Destructive() {
		var why string
		if d, why = w.lastMoment(ctx, d); why != "" {
			w.undone(a, why)
			return
		}
	}
	ctx, cancel := w.actTime(ctx, a)
	defer cancel()
	ctx, end, why := w.r.opt.Lead.Bound(ctx, a.Destructive())
	if why != "" { // I19, I22
		w.undone(a, why)
		return
	}
	defer end()
	var err error
	switch a {
	case remediate.SendOff:
		err = w.send(ctx, bmc.CommandOff)
	case remediate.SendOn:
		err = w.send(ctx, bmc.CommandOn)
	case remediate.BackupNode:
		err = w.backup(ctx)
	case remediate.IsolateNode:
		if !w.proven(d.seen) { // saving took time // I1
			w.undone(a, unprovenNow)
			return
		}
		err = w.hurt(ctx, d)
	case remediate.SetPowerLock, remediate.DeleteTargetMachine:
		err = w.hurt(ctx, d)
	default:
		err = w.r.opt.Kube.Act(ctx, w.run, a, d.backups, d.backup)
	}
	if a == remediate.RestoreTargetNode {
		w.refused = textOf(err)
	}
	if err != nil {
		w.emit(event.Event{Type: event.Failed, Action: a, Reason: failureReason(d.seen, err), Message: err.Error()})
	}
}

// textOf is what a refusal of the API server says, for a record: who admits writes
// may have written it.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return bmc.Printable(err.Error(), maxRefusal)
}

const unprovenNow = "the proof of off grew old"

// proven says whether what step 2 rests on still holds at the last moment: saving
// took time. A person's word holds as long as the look that found nothing against it
// is as fresh as a proof must be. // I1, I26
func (w *worker) proven(seen remediate.Observation) bool {
	if w.run.IsolatesOnConfirmation() {
		return time.Since(seen.At) <= power.ProofMaxAge
	}
	return w.session != nil && w.session.Proof().Proven(time.Now())
}

// hurt does a write that takes something away. Until it is answered, what it rests on is
// asked again and again: an API server that waits for a webhook carries it out half a
// minute later. What no longer holds cuts it off. // I1, I4, I23, I26
func (w *worker) hurt(ctx context.Context, d decision) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	run, done, good := w.run, make(chan error, 1), time.Now() // the last moment has just asked
	go func() { done <- w.r.opt.Kube.Act(ctx, run, d.action, d.backups, d.backup) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(writeCheck):
		}
		asked := time.Now()
		why := w.disproven(ctx, d, good)
		if good = asked; why == "" {
			continue
		}
		cut()
		if err := <-done; err != nil {
			return fmt.Errorf("action %s of Node %s: cut off, for %s: %w", d.action, run.Target.Node, why, err)
		}
		return nil // it had been done
	}
}

// disproven says why a write that is under way must not come to its end; "" when nothing
// speaks against it. good is when nothing did last: what is known may be as old as a proof.
func (w *worker) disproven(ctx context.Context, d decision, good time.Time) string {
	why := w.forbidden()
	switch {
	case why != "":
		return why
	case d.action == remediate.IsolateNode && !w.run.IsolatesOnConfirmation():
		return w.proofLost(ctx)
	}
	asking, cancel := context.WithDeadline(ctx, good.Add(power.ProofMaxAge))
	defer cancel()
	if why := w.lastWord(asking, d); why != "" {
		return why
	}
	seen := w.lookAtCluster(asking, d.seen, d.backups, d.backup)
	if seen.API != remediate.APIReachable || asking.Err() != nil {
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

// proofLost says why the host is not proven off any more. // I1
func (w *worker) proofLost(ctx context.Context) string {
	reading, cancel := context.WithDeadline(ctx, w.session.Proof().Until()) // or the write goes on with an old one
	defer cancel()
	if _, err := w.session.Read(reading); err != nil {
		return "the power state cannot be read any more: " + err.Error()
	}
	if !w.session.OffAccepted() || !w.session.Proof().Proven(time.Now()) {
		return "the host is no longer proven off"
	}
	return ""
}

// actTime bounds one action. A stop waits for it, unless it is a restore, which can take
// long and goes on at the next start where it was.
func (w *worker) actTime(ctx context.Context, a remediate.Action) (context.Context, context.CancelFunc) {
	most := writeTimeout
	switch a {
	case remediate.RestoreTargetNode:
		return context.WithTimeout(ctx, restoreTimeout)
	case remediate.BackupNode:
		most = actTimeout
	case remediate.SendOff, remediate.SendOn:
		if most = actTimeout; w.session != nil {
			most = max(most, w.session.SendTime+power.CloseTimeout)
		}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), most)
}

func (w *worker) send(ctx context.Context, c bmc.Command) error {
	if w.session == nil {
		return &bmc.Error{Kind: bmc.KindUnreachable, Op: "send " + c.String(), Addr: w.run.Target.Address, Err: errNoSession}
	}
	return w.session.Send(ctx, c)
}
