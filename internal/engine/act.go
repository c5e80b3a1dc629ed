package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
)

// Bounds of one action, question and answer.
const (
	actTimeout     = 15 * time.Second
	writeTimeout   = 45 * time.Second // an API server may wait half a minute for a webhook
	restoreTimeout = 3 * time.Minute  // of up to four writes
)

// proofCheck is how often it is asked, while an isolation is under way, whether what it
// rests on still holds. A proof is good for longer than that and one read.
const proofCheck = time.Second

const maxRefusal = 500 // bytes of why a Node could not be restored

// act performs one action. Its outcome is not believed: the next look sees it.
func (w *worker) act(ctx context.Context, d decision) {
	a := d.action
	if a.Hurts() && w.forbidden() != "" || !w.announce(a, d.seen) {
		return
	}
	if a.Hurts() {
		var why string
		if d, why = w.lastMoment(ctx, d); why != "" {
			w.undone(a, why)
			return
		}
	}
	ctx, cancel := w.actTime(ctx, a)
	defer cancel()
	ctx, end, why := w.c.actUntil(ctx, a.Hurts())
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
		err = w.isolate(ctx, d)
	default:
		err = w.c.opt.Kube.Act(ctx, w.run, a, d.backups, d.backup)
	}
	if a == remediate.RestoreTargetNode {
		w.refused = textOf(err)
	}
	if err != nil {
		w.emit(Event{Type: EventFailed, Action: a, Reason: failureReason(d.seen, err), Message: err.Error()})
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
func (w *worker) proven(seen remediate.Seen) bool {
	if w.run.ByWord() {
		return time.Since(seen.At) <= proofMaxAge
	}
	return w.session != nil && w.session.proof.Proven(time.Now())
}

// isolate does the write of step 2. Until it is answered, what it rests on is asked again
// and again: an API server that waits for a webhook carries it out half a minute later.
// What no longer holds cuts it off. // I1, I23, I26
func (w *worker) isolate(ctx context.Context, d decision) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	run, done, good := w.run, make(chan error, 1), time.Now() // a person's word was asked about just now
	go func() { done <- w.c.opt.Kube.Act(ctx, run, remediate.IsolateNode, d.backups, d.backup) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(proofCheck):
		}
		asked := time.Now()
		why := w.disproven(ctx, good)
		if good = asked; why == "" {
			continue
		}
		cut()
		if err := <-done; err != nil {
			return fmt.Errorf("isolate Node %s: cut off, for %s: %w", run.Target.Node, why, err)
		}
		return nil // it had been done
	}
}

// disproven says why an isolation that is under way must not come to its end; "" when
// nothing speaks against it. good is when nothing did last.
func (w *worker) disproven(ctx context.Context, good time.Time) string {
	if why := w.forbidden(); why != "" {
		return why
	}
	if w.run.ByWord() {
		return w.wordDisproven(ctx, good)
	}
	reading, cancel := context.WithDeadline(ctx, w.session.proof.Until()) // or the write goes on with an old one
	defer cancel()
	if _, err := w.session.read(reading); err != nil {
		return "the power state cannot be read any more: " + err.Error()
	}
	if !w.session.accepted.Off() || !w.session.proof.Proven(time.Now()) {
		return "the host is no longer proven off"
	}
	return ""
}

// wordDisproven is disproven of an isolation on a person's word: the BMCs, the Lease and the
// Node are asked, all within the age that a proof may have. // I26
func (w *worker) wordDisproven(ctx context.Context, good time.Time) string {
	asking, cancel := context.WithDeadline(ctx, good.Add(proofMaxAge))
	defer cancel()
	if why := w.lastWord(asking, decision{action: remediate.IsolateNode}); why != "" {
		return why
	}
	seen := w.c.opt.Kube.Look(asking, w.run, nil).Seen
	if seen.API != remediate.APIReachable || asking.Err() != nil {
		return "the cluster did not say in time what may speak against the word"
	}
	return remediate.Against(w.run, seen)
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
			most = max(most, w.session.sendTime+closeTimeout)
		}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), most)
}

func (w *worker) send(ctx context.Context, c bmc.Command) error {
	if w.session == nil {
		return &bmc.Error{Kind: bmc.KindUnreachable, Op: "send " + c.String(), Addr: w.run.Target.Address, Err: errNoSession}
	}
	return w.session.send(ctx, c)
}
