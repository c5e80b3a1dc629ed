package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
)

// giveOrder gives an order to the engine.
type giveOrder func(control, context.Context, wire.Order) (order.Outcome, error)

// orderRow is what the daemon does with the orders of one verb.
type orderRow struct {
	give giveOrder
	// outcome says in a sentence what became of the order.
	outcome func(wire.Order, order.Outcome) string
	// effect says what the order does to the world; nil = nothing to warn of.
	effect func(wire.Order) []string
}

// orders is the table. bmc/enroll, which answers with what it stored, is in hosts.go.
var orders = map[wire.Verb]orderRow{
	wire.Fence:       {byEngine((*engine.Engine).Fence), fenceMessage, fenceEffect},
	wire.Unfence:     {byEngine((*engine.Engine).Unfence), func(o wire.Order, out order.Outcome) string { return "run " + out.Run + " brings " + o.Of() + " back" }, nil},
	wire.Abort:       {byEngine((*engine.Engine).Abort), abortMessage, nil},
	wire.Retry:       {byEngine((*engine.Engine).Retry), func(o wire.Order, _ order.Outcome) string { return "run " + o.Run + " continues" }, nil},
	wire.ConfirmOff:  {control.confirmOff, confirmMessage, confirmEffect},
	wire.Hold:        {byEngine((*engine.Engine).Hold), holdMessage, nil},
	wire.Release:     {byEngine((*engine.Engine).ReleaseHold), releaseMessage, nil},
	wire.Pause:       {byEngine((*engine.Engine).Pause), func(o wire.Order, out order.Outcome) string { return stopMessage("paused"+o.InClusters(), out) }, nil},
	wire.Resume:      {byEngine((*engine.Engine).Resume), resumeMessage, nil},
	wire.Arm:         {arming(engine.Arming.Arm), armMessage, armEffect},
	wire.Disarm:      {arming(engine.Arming.Disarm), disarmMessage, nil},
	wire.UnfreezeBMC: {control.unfreeze, unfreezeMessage, nil},
}

func byEngine(give func(*engine.Engine, context.Context, wire.Order) (order.Outcome, error)) giveOrder {
	return func(c control, ctx context.Context, o wire.Order) (order.Outcome, error) {
		return give(c.engine, ctx, o)
	}
}

func arming(give func(engine.Arming, context.Context, wire.Order) (order.Outcome, error)) giveOrder {
	return func(c control, ctx context.Context, o wire.Order) (order.Outcome, error) {
		return give(c.engine.Arming, ctx, o)
	}
}

// confirmOff adds to the evidence what the health check of BMCs read.
func (c control) confirmOff(ctx context.Context, o wire.Order) (order.Outcome, error) {
	out, err := c.engine.ConfirmOff(ctx, o)
	out.Evidence = append(out.Evidence, c.lastHealthCheck(ctx, o)...)
	return out, err
}

// unfreeze also has the BMCs of the host read anew.
func (c control) unfreeze(ctx context.Context, o wire.Order) (order.Outcome, error) {
	out, err := c.engine.Unfreeze(ctx, o)
	if err == nil {
		c.sweep.PollSoon(o.Cluster, o.Of())
	}
	return out, err
}

func (c control) Do(ctx context.Context, o wire.Order) (wire.OrderResult, error) {
	defer c.surveys.orders.Add(1)
	switch o.Verb {
	case wire.EnrollBMC:
		return c.enroll(ctx, o)
	case wire.LogLevel:
		return c.setLogLevel(o)
	case wire.Reload:
		return c.reloader.order(ctx, o)
	}
	row, known := orders[o.Verb]
	if !known {
		return wire.OrderResult{}, fmt.Errorf("no verb %q", o.Verb)
	}
	out, err := row.give(c, ctx, o)
	if r, refused := errors.AsType[*reason.Refusal](err); refused && out.Target != nil && r.Reason != reason.UnderRemediation { // only a dry run has a target
		return dryRunRefused(o, out, r), nil
	}
	if err != nil {
		return wire.OrderResult{}, c.refusal(o, err)
	}
	res := wire.OrderResult{
		Run: out.Run, Joined: out.Joined, Message: row.outcome(o, out), Gates: out.Gates, Target: out.Target,
		Evidence: out.Evidence, Until: out.Until, Unchanged: out.Unchanged != "", Nodes: out.Nodes, Unlabelled: out.Unlabelled,
	}
	if row.effect != nil && out.Unchanged == "" {
		res.Effect = row.effect(o)
	}
	if o.Verb == wire.Arm && o.DryRun && out.Unchanged == "" {
		res.Plan = c.planArmed(ctx, o.Cluster)
	}
	return res, nil
}

// Refused records what a person ordered and was refused: a role, a gate, a name that
// nobody knows; or what failed. // I24
func (c control) Refused(o wire.Order, e *api.Error) {
	word := "refused: "
	if e.Status >= http.StatusInternalServerError { // it may yet be carried out
		word = "failed: "
	}
	if o.Cluster == "" && o.Of()+o.Run != "" {
		o.Cluster = c.OnlyCluster()
	}
	c.events.Emit(event.Event{
		Type: event.Ordered, Cluster: o.Cluster, Node: o.Node, Machine: o.Machine, Run: o.Run, Actor: o.Actor, Why: o.Reason,
		Reason: reason.Code(e.Code), Message: word + string(o.Verb) + " by " + o.Actor + ": " + e.Message,
	})
}

// setLevel sets how much is logged from now on: debug, info, warn or error.
func setLevel(level zap.AtomicLevel, name string) error {
	l, err := zapcore.ParseLevel(name)
	if err != nil {
		return fmt.Errorf("log level %q: %w", name, err)
	}
	level.SetLevel(l)
	return nil
}

// setLogLevel carries out fencectl log-level, until the next reload or restart.
func (c control) setLogLevel(o wire.Order) (wire.OrderResult, error) {
	before := c.level.String()
	if o.Level == before {
		c.events.Emit(event.Event{Type: event.Ordered, Actor: o.Actor, Why: o.Reason, Message: fmt.Sprintf("log-level by %s: it is %s already", o.Actor, before)})
		return wire.OrderResult{Message: "the log level is " + before + " already", Unchanged: true}, nil
	}
	if err := setLevel(c.level, o.Level); err != nil { // the server has checked the word
		return wire.OrderResult{}, err
	}
	c.events.Emit(event.Event{Type: event.Ordered, Actor: o.Actor, Why: o.Reason,
		Message: fmt.Sprintf("log-level by %s: it was %s and is %s", o.Actor, before, o.Level)})
	return wire.OrderResult{Message: fmt.Sprintf("the log level was %s and is %s, until fenced is reloaded or restarted", before, o.Level)}, nil
}

func disarmMessage(o wire.Order, out order.Outcome) string {
	if out.Unchanged != "" {
		return out.Unchanged + ": nothing changed"
	}
	if o.Cluster == "" { // the only one
		return "disarmed: fenced begins nothing by itself; open runs bring their hosts back, and only those that an admin ordered go on"
	}
	return "disarmed" + o.InClusters() + ": fenced begins nothing by itself; open runs bring their hosts back, and only those that an admin ordered go on"
}

func armMessage(o wire.Order, out order.Outcome) string {
	switch {
	case out.Unchanged != "":
		return out.Unchanged + ": nothing changed"
	case o.DryRun:
		return "fenced would act in this cluster by itself"
	}
	return "armed; the quiet period begins, and nothing is fenced before " + out.Until.UTC().Format(time.RFC3339)
}

func armEffect(o wire.Order) []string {
	if !o.DryRun {
		return nil
	}
	return []string{
		"fenced fences what the checks ask for, by itself, until fencectl disarm",
		"the quiet period of guards.quietPeriod comes first; fencectl plan shows what follows it",
	}
}

func resumeMessage(o wire.Order, out order.Outcome) string {
	switch {
	case out.Unchanged != "" && out.Still != "":
		return out.Unchanged + "; fencing is still stopped: " + out.Still
	case out.Unchanged != "":
		return out.Unchanged + ": nothing changed"
	case out.Still != "":
		return "resumed" + o.InClusters() + ", but fencing is still stopped: " + out.Still
	}
	return "resumed" + o.InClusters() + "; the quiet period begins"
}

// stopMessage says how long a stop binds, and whether it outlives the daemon.
func stopMessage(what string, out order.Outcome) string {
	switch {
	case out.Unsaved != "":
		return out.Unsaved
	case !out.Until.IsZero():
		what += " until " + out.Until.Format(time.RFC3339)
	}
	if out.Earlier != "" {
		what += "; an earlier stop that ends later stays in force, by " + out.Earlier
	}
	return what
}

// releaseMessage says which of the two was released: a hold and a quarantine end apart.
func releaseMessage(o wire.Order, out order.Outcome) string {
	switch {
	case out.Selector != "":
		return groupMessage(o, out, "released")
	case out.Quarantine:
		return o.Of() + " is released from quarantine"
	case out.Still != "":
		return o.Of() + " is no longer held, but still " + out.Still + "; release it again to end that too"
	}
	return o.Of() + " is no longer held"
}

func holdMessage(o wire.Order, out order.Outcome) string {
	if out.Selector != "" {
		done := "held until they are released"
		if !out.Until.IsZero() {
			done = "held until " + out.Until.Format(time.RFC3339)
		}
		return groupMessage(o, out, done)
	}
	text := o.Of() + " is " + stopMessage("held", out)
	if out.Run != "" {
		text += "; run " + out.Run + " is open on it, and may still switch the host on: fencectl timeline " + out.Run
	}
	if out.Unseen {
		kind := "Node"
		if o.Machine != "" {
			kind = "Machine"
		}
		text += "; fenced sees no " + kind + " of this name now, and the hold applies as soon as it does"
	}
	return text
}

// groupMessage says what an order about labels did, and what it could not know. done is true of the Nodes that it changed.
func groupMessage(o wire.Order, out order.Outcome, done string) string {
	changed := 0
	for _, n := range out.Nodes {
		if n.Changed {
			changed++
		}
	}
	if o.DryRun {
		done = "would be " + done
	}
	text := fmt.Sprintf("Nodes with %s: %d %s", out.Selector, changed, done)
	if others := len(out.Nodes) - changed; others > 0 {
		text += fmt.Sprintf("; %d stay as they were", others)
	}
	if n := len(out.Unlabelled); n > 0 {
		text += fmt.Sprintf("; %d Machines without a Node are not among them, because nobody knows their labels: hold those by name", n)
	}
	if out.OldView != "" {
		text += "; Nodes that have joined since may be missing: " + out.OldView
	}
	if out.Unsaved != "" {
		text += "; " + out.Unsaved
	}
	return text
}

func abortMessage(o wire.Order, out order.Outcome) string {
	switch {
	case out.Asked != "":
		return "record " + o.Run + " is ended: fenced no longer watches " + out.Asked + "; while that object exists nothing acts on its target, so delete it when its remediator has stopped"
	case o.AsIs:
		return "run " + o.Run + " is closed, and its host stays as it is"
	}
	return "run " + o.Run + " is aborted: its host is brought back"
}

func confirmMessage(o wire.Order, out order.Outcome) string {
	if o.DryRun {
		return "this is what is known about " + o.Node
	}
	return "run " + out.Run + " continues on your confirmation that the host of " + o.Node + " is off"
}

// lastHealthCheck is what the health check knows of a host: when its devices last answered,
// and what the newest look read.
func (c control) lastHealthCheck(ctx context.Context, o wire.Order) (evidence []string) {
	found, err := c.sweep.Select(ctx, func(cluster, node, _ string) bool { return (o.Cluster == "" || cluster == o.Cluster) && node == o.Node }, func(*sweep.Result) bool { return true })
	if err != nil { // nothing was seen yet
		return nil
	}
	for i := range found {
		r := &found[i]
		if r.LastGood.IsZero() {
			continue
		}
		text := "BMC health check: " + r.Address + " last answered " + time.Since(r.LastGood).Round(time.Second).String() + " ago"
		if r.Failures == 0 {
			text += ", and read " + r.Power.String()
		}
		evidence = append(evidence, text)
	}
	return evidence
}

// unfreezeMessage says whether the host may be switched, or stays frozen for another BMC.
func unfreezeMessage(o wire.Order, out order.Outcome) string {
	if out.Still != "" {
		return o.Of() + " stays frozen for another reason, although one freeze has ended: " + out.Still
	}
	return o.Of() + " may be powered off again"
}

func confirmEffect(o wire.Order) []string {
	return []string{
		"no BMC proves that the host of " + o.Node + " is off: your confirmation replaces the proof, and the record shows that for good",
		"its Node is isolated and its pods and volumes can move to other nodes; if the host is running after all, two machines may write to one disk",
		"the host stays off and the run stays Held until fencectl unfence, or until the Node registers again after another boot",
		"make sure that the host cannot start: disconnect its power, or lock its outlet",
	}
}

// dryRunRefused is the answer to a dry run of a fence that a gate forbids: who asks wants all
// that was found.
func dryRunRefused(o wire.Order, out order.Outcome, r *reason.Refusal) wire.OrderResult {
	return wire.OrderResult{
		Message: fmt.Sprintf("%s would not be fenced (%s): %s", o.Of(), r.Reason, r.Message),
		Effect:  fenceEffect(o), Gates: out.Gates, Target: out.Target,
	}
}

func fenceMessage(o wire.Order, out order.Outcome) string {
	switch {
	case o.DryRun && !out.Joined:
		return o.Of() + " would be fenced"
	case out.Joined:
		return "joined run " + out.Run + ", which already fences " + o.Of()
	}
	return "run " + out.Run + " fences " + o.Of()
}

func fenceEffect(o wire.Order) []string {
	all := []string{"the power of " + o.Of() + " is cut at once, without a shutdown"}
	if o.Machine == "" {
		all = append(all, "after the BMC has read Off twice, its Node is isolated and its pods can move to other nodes")
	} else {
		all = append(all, "if it has a Node, that is isolated after the BMC has read Off twice, and its pods can move to other nodes")
	}
	if o.OffOnly {
		return append(all, "the host stays off until fencectl unfence")
	}
	if o.Machine == "" {
		return append(all, "the host is powered on again, and its labels, annotations, taints and cordon are restored",
			"if the Node does not come back after guards.maxAttempts power cycles, its Machine is replaced where that is allowed")
	}
	return append(all, "the host is powered on again; if the Machine has no Node and none registers in time, the Machine is replaced where that is allowed")
}

// withReason is a command line that needs a reason.
func withReason(line string) string { return line + " --reason WHY" }

// apiError gives a refusal its place among the API's errors, with the command that helps. o is
// the order, or says what was asked about.
func apiError(o wire.Order, err error) error {
	r, ok := errors.AsType[*reason.Refusal](err)
	if !ok {
		return err
	}
	code, hint := string(r.Reason), refusalHint(o, r.Reason)
	switch r.Reason {
	case reason.NoSuchNode, reason.NoSuchMachine, reason.NoSuchCluster, reason.NoSuchRun:
		return api.NotFound(code, r.Message, hint)
	case reason.ClusterRequired, reason.AmbiguousName:
		return &api.Error{Status: http.StatusBadRequest, Code: code, Message: r.Message, Hint: hint}
	case reason.NoHold, reason.NoRun, reason.UnderRemediation, reason.NotFrozen:
		return api.Conflict(code, r.Message, hint)
	}
	return api.Refused(code, r.Message, hint)
}

// afterwards is what to do before an order is given again. Somebody who has confirmed that a host is off may have left the site:
// nothing of the refused confirmation is kept.
func afterwards(o wire.Order, first string) string {
	switch o.Verb {
	case wire.ConfirmOff:
		return first + ". Nothing is isolated, and the confirmation was not kept; leave the host without power, and give it again: " + withReason(o.Command("confirm-off"))
	case "":
		return first
	}
	return first + ", and give the order again"
}

// aboutAnswer says whether a reason is what a BMC answered, or that it did not answer.
func aboutAnswer(code reason.Code) bool {
	return strings.HasPrefix(string(code), "BMC") && code != reason.BMCShared
}

// refusalHint is what to do about a refusal, for this very node where that helps.
func refusalHint(o wire.Order, code reason.Code) string {
	inCluster := wire.Order{Cluster: o.Cluster}.Command
	switch code {
	case reason.NotSynced:
		switch { // a name needs no view
		case o.Group.IsGiven() && o.Verb == wire.Release:
			return "release the Nodes by name"
		case o.Group.IsGiven():
			return "hold the Nodes by name, or stop all fencing meanwhile: " + withReason(inCluster("pause"))
		}
	case reason.NoSuchNode:
		if o.Group.IsGiven() {
			return "kubectl get nodes --show-labels lists the labels of each"
		}
		return "kubectl get nodes lists the names; " + inCluster("bmc list") + " lists those with a BMC, fencectl status the clusters"
	case reason.NoSuchMachine:
		return "kubectl get machines -A lists the names, which are NAMESPACE/NAME here; fencectl status lists the clusters"
	case reason.NoSuchCluster:
		return "fencectl status lists the clusters"
	case reason.NoSuchRun:
		return "fencectl history lists the runs"
	case reason.ClusterRequired:
		return "add --cluster NAME"
	case reason.AmbiguousName:
		return "give another of its names: the Node, the run, or --machine NAMESPACE/NAME; with several clusters add --cluster NAME"
	case reason.NoHold, reason.TooManyHolds:
		return "fencectl status lists the holds"
	case reason.NoRun:
		return "see fencectl status for the open runs"
	case reason.NotFrozen:
		return inCluster("bmc list") + " shows what is refused, and why"
	case reason.NotOwner:
		return "give it at the instance that owns the cluster: fencectl status names it"
	case reason.Observing:
		if o.Verb == wire.ConfirmOff { // an admin's fence is no way out: it asks the BMC first
			return afterwards(o, withReason(inCluster("arm"))+" shows what else it lets fenced fence; until then a confirmation begins no run")
		}
		return withReason(inCluster("arm")) + " lets fenced act; an admin may fence one node without that"
	case reason.OrderRefused:
		if o.Verb == wire.Disarm {
			return "to stop fencing there: " + withReason(inCluster("pause"))
		}
	case reason.FilesRefused:
		return afterwards(o, wire.CorrectFiles)
	case reason.AuditFailed:
		return afterwards(o, "fencectl status says what the audit log lacks: free space on its disk, or see audit-log.md")
	case reason.NotSaved:
		return afterwards(o, "fencectl status says more: free space on the disk of the state, or look at its etcd")
	case reason.Paused:
		return "fencectl status says who paused what; " + withReason(inCluster("resume")) + " ends it"
	}
	if o.Of() == "" {
		if o.Run != "" {
			return "fencectl timeline " + o.Run
		}
		return "see fencectl status"
	}
	switch code {
	case reason.Hold:
		return withReason(o.Command("release"))
	case reason.ConfirmedOffContradicted:
		return afterwards(o, "find out whether the host runs: "+o.TestBMC()+" shows what its BMC answers")
	case reason.NotEnrolled, reason.AddressChanged, reason.IdentityUnknown:
		return "check the cabling, then run " + withReason(o.Command("bmc enroll"))
	case reason.Contested:
		return "hand the check over, or let the other remediator finish (install.md, section 6); " + o.Command("explain") + " shows who"
	case reason.SecretMissing:
		return "correct the file or the Secret that it names, then " + o.TestBMC()
	case reason.NoHost:
		return "give the host a BareMetalHost, or an entry in hosts.d; " + o.Command("explain") + " shows what was looked for"
	case reason.PowerOwner:
		return "the BareMetalHost's owner switches the power: install.md, section 6, Beside Metal3; " + o.Command("explain") + " shows the field"
	case reason.Frozen:
		return "repair the BMC, then run " + withReason(o.Command("bmc unfreeze"))
	case reason.ClassFrozen: // none of these stands on this host
		return "repair the BMCs of the hosts that it names, then run " + withReason("fencectl bmc unfreeze NODE") + " for each; with several clusters add --cluster NAME"
	}
	if aboutAnswer(code) {
		return o.TestBMC() + " shows what its BMC answers; to fence it without the BMC: go there, cut its mains, then run " + withReason(o.Command("confirm-off"))
	}
	return o.Command("explain") + " shows every gate"
}
