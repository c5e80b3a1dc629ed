package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// Bounds of one action.
const (
	actTimeout     = 15 * time.Second
	writeTimeout   = 45 * time.Second // an API server may wait half a minute for a webhook
	restoreTimeout = 3 * time.Minute  // of up to four writes
)

const maxRefusal = 500 // bytes of why a Node could not be restored

// act performs one action. It does not believe the outcome: the next look shows it.
func (w *worker) act(ctx context.Context, d decision) {
	a := d.action
	if a.Destructive() && w.isForbidden(a) {
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
			w.saveContradiction(ctx)
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
		if !w.power.proven(w.run, a, d.seen) { // saving took time // I1
			w.emitNotDone(a, "the proof of off grew old")
			return
		}
		if a == remediate.IsolateNode {
			w.recordOffReads(d.seen)
		}
		err = w.writeWhileAllowed(ctx, d)
	case remediate.SetPowerLock, remediate.DeleteTargetMachine:
		err = w.writeWhileAllowed(ctx, d)
	case remediate.RestoreTargetNode:
		var keys []string
		keys, err = w.r.opt.Kube.Restore(ctx, w.run, d.backups)
		before := w.restored
		w.restored = restored{nodeUID: w.run.NewNodeUID, keys: keys}
		switch {
		case err == nil:
		case errors.Is(err, remediate.ErrChanged) && before.nodeUID == w.run.NewNodeUID && before.refusal != "": // that says more
			w.restored.refusal = before.refusal
		default: // an admission webhook may have written the text
			w.restored.refusal = bmc.Printable(err.Error(), maxRefusal)
		}
	default:
		err = w.r.opt.Kube.Act(ctx, w.run, a, d.backups, d.backup)
	}
	if err != nil {
		w.emit(event.Event{Type: event.Failed, Action: a, Reason: failureReason(d.seen, err), Message: err.Error()})
		w.saveContradiction(ctx) // it may be what cut the action off
	}
}

// restored is what the API server answered to the last attempt to restore the Node.
type restored struct {
	nodeUID string
	keys    []string // that were read back
	refusal string   // why it failed; "" if it did not
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
		timeout = actTimeout
		if s := w.power.session; s != nil { // one command, and the end of its session
			timeout = max(actTimeout, s.SendTime+power.CloseTimeout)
		}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
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

// announce emits that an action is about to be done, and returns whether it may be done. A
// destructive action may be done only after that is durable. // I24
func (w *worker) announce(a remediate.Action, seen remediate.Observation) bool {
	ev := event.Event{Type: event.Acting, Action: a, Node: w.run.Target.Node, Machine: w.run.Target.WithoutNode(), Run: w.run.ID, Step: w.run.Step, Check: w.run.CheckID, Inputs: inputs(w.run, seen, time.Now())}
	if by := w.run.Confirmed; by != nil {
		ev.Actor, ev.Why = by.Actor, by.Reason // the confirmation may be all that the action is done on // I26
	}
	if !a.Destructive() {
		w.r.emit(ev)
		return true
	}
	ev, err := w.r.opt.Cluster.Record(ev)
	if err != nil {
		if event.PerhapsRecorded(err) { // whoever reads the log finds both // I24
			w.r.emit(ev)
			w.emitNotDone(a, err.Error())
		}
		return false
	}
	w.r.emit(ev)
	return true
}

// emitNotDone emits that an announced action was not attempted.
func (w *worker) emitNotDone(a remediate.Action, why string) {
	w.emit(event.Event{Type: event.Failed, Action: a, Message: "not done: " + why})
}

// inputs describes what an action was decided on, for the audit log. // I24
func inputs(r remediate.Run, s remediate.Observation, now time.Time) string {
	answer := map[remediate.Answer]string{remediate.CannotTell: "unknown", remediate.No: "no", remediate.Yes: "yes"}
	api := map[remediate.APIState]string{remediate.APIUnreachable: "unreachable", remediate.APIReachable: "reachable", remediate.APIForbidden: "forbidden"}
	proof := string(s.ProofKind)
	if r.IsolatesOnConfirmation() { // it is a person who proves the host off // I26
		proof = fmt.Sprintf("%s by=%q", remediate.ProofHuman, r.Confirmed.Actor)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "level=%d power=%s raw=%q", s.Level, s.Power.State, s.Power.Raw)
	if s.PowerError != "" {
		fmt.Fprintf(&b, " powerError=%s", cmp.Or(string(s.LevelRefusal), string(s.PowerError)))
	}
	fmt.Fprintf(&b, " proof=%s proven=%t offAccepted=%t identity=%s api=%s", proof, s.Proof.Proven(now), s.OffAccepted, answer[s.Identity], api[s.API])
	fmt.Fprintf(&b, " node=%s nodeUID=%s bootID=%s ready=%s", answer[s.Node.Exists], s.Node.UID, s.Node.BootID, answer[s.Node.Ready])
	if s.Lease.Known {
		fmt.Fprintf(&b, " lease=%q", s.Lease.ResourceVersion)
	}
	fmt.Fprintf(&b, " machineUID=%s justified=%s contested=%s quorum=%s powerLock=%s podsGone=%s backup=%s",
		s.Machine.UID, answer[s.Justified], answer[s.Contested], answer[s.Quorum], answer[s.PowerLock], answer[s.PodsGone], s.Backup.UID)
	for _, why := range []struct{ key, value string }{{"why", s.Why}, {"withdrawn", s.WithdrawnWhy}, {"contender", s.Contender}, {"quorumWhy", s.QuorumWhy}} {
		if why.value != "" {
			fmt.Fprintf(&b, " %s=%q", why.key, why.value)
		}
	}
	return b.String()
}

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
	if w.inbox.hasOrders() { // an order of a person binds the very next write // I13, I23
		return "an order has come"
	}
	if _, why := w.stopReason(); why != "" { // I23
		return why
	}
	_, frozen := w.r.opt.Hosts.Frozen(w.run.Target) // I5
	return frozen
}

// isForbidden says whether a destructive action may not be done now. A freeze that refuses it twice is told, once: no look shows it to
// steps 2 and 6. Everything else that forbids is told by the look. // L4
func (w *worker) isForbidden(a remediate.Action) bool {
	why := w.forbidden()
	code, frozen := w.r.opt.Hosts.Frozen(w.run.Target)
	switch last := &w.forbade; {
	case why != last.why:
		last.why, last.told = why, false
	case why != "" && why == frozen && !last.told:
		last.told = true
		w.emit(event.Event{Type: event.Failed, Action: a, Reason: code, Message: "not done: " + why})
	}
	return why != ""
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
	// A host must not be switched off although the machine was identified if there is a duplicate by now, or if the
	// BareMetalHost now leads to another BMC, whose owner would carry out the power lock there. Every Off is checked: a record
	// that has begun one does not say that it was sent. // I9, I10
	if d.action == remediate.SetPowerLock {
		if _, err := w.r.opt.Hosts.FindBare(ctx, w.run.Target); err != nil {
			return d, cmp.Or(reason.Sentence(err), "its BareMetalHost cannot be found") // an empty text would let it act
		}
	}
	if d.action == remediate.SetPowerLock || d.action == remediate.SendOff {
		if why := w.r.opt.Hosts.DuplicateOf(w.run, w.power.host()); why != "" {
			return d, why
		}
	}
	if why := w.power.finalRead(ctx, w.run, d.action); why != "" {
		return d, why
	}
	if why := w.forbidden(); why != "" {
		return d, why
	}
	switch d.action {
	case remediate.SendOff, remediate.SetPowerLock, remediate.DeleteTargetMachine: // they begin something; what isolates a host that is off brings it back // I4
		if w.run.Confirmed == nil {
			if why := w.r.opt.Cluster.ModeForbids(w.run); why != "" { // somebody has disarmed the cluster since
				return d, why
			}
		}
	}
	if w.isStale(d) {
		return d, "what it was decided on grew old"
	}
	return d, ""
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
	w.keepHeld(next) // its reason may not be observed again // I5, I26
	return d, "saving took long, and a fresh look asks for another action"
}

// isStale reports whether what an action was decided on is too old: the proof of off, if the
// action needs one, and for all but the isolation the look. // I1, I4
func (w *worker) isStale(d decision) bool {
	if (d.action == remediate.IsolateNode || d.action == remediate.ReleasePods) && !w.power.proven(w.run, d.action, d.seen) { // until it is done // I1
		return true
	}
	return d.action != remediate.IsolateNode && time.Since(d.seen.At) > actFresh
}

// sameExceptTime reports whether two records of one decision differ only in its time.
func sameExceptTime(a, b remediate.Run) bool {
	a.Version, a.StepStarted, a.Intent.At = b.Version, b.StepStarted, b.Intent.At
	return reflect.DeepEqual(a, b)
}

// writeCheck is how often fenced checks, while a destructive write is in progress, whether its
// conditions still hold. A proof stays fresh for longer than that and one read.
const writeCheck = time.Second

// writeWhileAllowed does a destructive write to the cluster. Until the API server answers, it
// checks the conditions of the write again and again: an API server that waits for a webhook may
// carry the write out half a minute later. If a condition no longer holds, it cuts the write
// off. // I1, I4, I23, I26
func (w *worker) writeWhileAllowed(ctx context.Context, d decision) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	run, done, checked := w.run, make(chan error, 1), time.Now() // lastMoment has just checked
	var good atomic.Pointer[time.Time]                           // for how long what is known allows the write
	allow := func() {
		until := checked.Add(power.ProofMaxAge)
		if standsOnProof(run, d.action) {
			until = w.power.session.Proof.Until()
		}
		good.Store(&until)
	}
	allow()
	ctx = bmc.Until(ctx, func() time.Time { return *good.Load() }) // a process that was frozen checks too late
	go func() { done <- w.r.opt.Kube.Act(ctx, run, d.action, d.backups, d.backup) }()
	for {
		next := writeCheck
		if standsOnProof(run, d.action) { // at the latest when its proof would be too old // I1
			next = min(next, time.Until(w.power.session.Proof.Until()))
		}
		select {
		case err := <-done:
			return err
		case <-time.After(next):
		}
		began := time.Now()
		why := w.whyCutOff(ctx, d, checked)
		if checked = began; why == "" {
			allow()
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
	case standsOnProof(w.run, d.action):
		reading, cancel := context.WithDeadline(ctx, w.power.session.Proof.Until()) // a longer read would let the write go on with an old proof
		defer cancel()
		return w.power.proofLost(reading, w.run)
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

// savedBackups are the copies of the Node that were saved for one run. Nobody else writes them,
// so they are read from the store only once.
type savedBackups struct {
	lead *lead.Lead
	run  string         // its ID
	list []state.Backup // as stored; nil if that is not known
}

// read returns the saved Nodes as JSON and, from the newest, what a deletion must match. An
// error means that they could not be read, which is not the same as none.
func (b *savedBackups) read(ctx context.Context) (nodes [][]byte, last remediate.Backup, err error) {
	if b.list == nil {
		list, err := state.Backups(ctx, b.lead.Store(), b.run)
		if err != nil {
			return nil, remediate.Backup{Unread: true}, err
		}
		b.list = append([]state.Backup{}, list...)
	}
	nodes = make([][]byte, 0, len(b.list))
	for _, each := range b.list {
		nodes = append(nodes, each.Node)
		last = remediate.Backup{UID: each.NodeUID, ResourceVersion: each.ResourceVersion}
	}
	return nodes, last, nil
}

// save saves a fresh copy of the whole Node. SaveBackup reads it back. // I21
func (b *savedBackups) save(ctx context.Context, kube Kube, t remediate.Target) error {
	node, read, err := kube.Backup(ctx, t)
	if err != nil {
		return err
	}
	b.list = nil
	return state.SaveBackup(ctx, b.lead.Store(), state.Backup{
		RunID: b.run, NodeUID: read.UID, ResourceVersion: read.ResourceVersion, Saved: time.Now().UTC(), Node: node,
	})
}
