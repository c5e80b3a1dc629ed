package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/timeline"
	"github.com/fenced/fenced/internal/wire"
)

// control is the engine as the control socket sees it: it only translates.
type control struct {
	engine   *engine.Engine
	sweep    *sweep.Sweep
	events   *event.Stream
	store    state.Store
	audit    *auditor
	notes    *timeline.Notes
	level    zap.AtomicLevel
	reloader *reloader
	clusters *clusters
	surveys  *surveys
	version  string
}

func (c control) Status(ctx context.Context) (wire.Status, error) {
	s := wire.Status{Version: c.version, LogLevel: c.level.String(), Armed: true, Clusters: []wire.ClusterStatus{}, Runs: []wire.RunStatus{}, Audit: c.auditStatus(), Reload: c.reloader.refused.Load()}
	bmcs, unread := c.surveyBMCs(ctx)
	s.BMCs = bmcs.count
	paused, gaps := 0, []wire.NodeGap(nil)
	for _, cs := range c.engine.Status() {
		s.Armed = s.Armed && cs.Armed
		if cs.Paused != "" {
			paused++
			s.PausedReason, s.PausedNext = cs.Paused, cs.Resume
		}
		found, err := c.engine.Overview(cs.Name) // nothing while the cluster is not seen whole, which its problem says
		cluster := clusterStatus(cs, found.Report)
		cluster.Next = nextOfProblem(&cs, c.clusters.kubeconfig(cs.Name))
		if err == nil && unread == nil {
			cover := fleet{cluster: cs.Name, found: found, devices: bmcs.devices[cs.Name]}.cover()
			cluster.Cover = &cover
			cluster.Hint = strings.Join(slices.DeleteFunc([]string{cluster.Hint, uncheckedHint(cover, c.sweep.IsOff())}, func(h string) bool { return h == "" }), "; ")
			addSlips(cluster.Checks, found.Slips)
			gaps = append(gaps, cover.Gaps...)
		}
		for _, h := range c.engine.Holds(cs.Name) {
			cluster.Holds = append(cluster.Holds, holdStatus(h))
		}
		cluster.Requests, cluster.RequestsMore = c.requests(cs.Name)
		s.Clusters = append(s.Clusters, cluster)
		blocked, more := share(blockedIn(cs), maxTargetsShown, func(b wire.Blocked) string { return namespaceIn(b.Check) })
		s.Blocked, s.BlockedMore = append(s.Blocked, blocked...), s.BlockedMore+more
		for _, r := range cs.Runs {
			s.Runs = append(s.Runs, c.runStatus(r))
		}
	}
	s.Recent, s.RecentMore = wire.RecentRuns(c.engine.Runs(""), time.Now())
	s.Paused = paused > 0 && paused == len(s.Clusters)
	if !s.Paused {
		s.PausedReason, s.PausedNext = "", ""
	}
	explainBlocked(s.Blocked, bmcs.bad)
	s.BMCs.Accounts = refusedAccounts(bmcs.bad, gaps)
	return s, nil
}

// uncheckedHint says that nobody looks at the BMCs of covered Nodes by itself, so that status does not learn whether these could be fenced.
func uncheckedHint(cover wire.NodeCover, off bool) string {
	if !off || cover.Unknown == 0 {
		return ""
	}
	return fmt.Sprintf("whether %d of %d covered nodes could be fenced is not known, because sweep.interval is 0s: fencectl bmc test NODE reads the BMC of one, and with another sweep.interval fenced reads all", cover.Unknown, cover.Covered)
}

// holdStatus is one hold. One of a Machine has its "namespace/name" as its name.
func holdStatus(h state.Hold) wire.HoldStatus {
	out := wire.HoldStatus{Node: h.Node, By: h.By, Reason: h.Reason, Since: h.At, Until: h.Until, Quarantine: h.Quarantine, Selector: h.Selector}
	if strings.Contains(h.Node, "/") {
		out.Node, out.Machine = "", h.Node
	}
	return out
}

// auditStatus returns why the audit log cannot be written; nil when it can.
func (c control) auditStatus() *wire.AuditStatus {
	since, err := c.audit.trouble()
	if err == nil {
		return nil
	}
	return &wire.AuditStatus{Problem: err.Error(), Since: since, Missing: uint64(c.audit.failures()), Next: nextOfAudit(c.audit.path, err)}
}

func clusterStatus(cs engine.ClusterStatus, found policy.Report) wire.ClusterStatus {
	out := wire.ClusterStatus{
		Name: cs.Name, Mode: cs.Mode, Armed: cs.Armed, Owner: cs.Owner && cs.HeldBy == "", OwnerName: cs.OwnerName, Epoch: cs.Epoch, HeldBy: shown(cs.HeldBy),
		ViewAgeSeconds: cs.View.Age.Seconds(), Problem: cmp.Or(cs.ViewBad, cs.Idle), ProblemReason: string(problemReason(&cs)), Aside: cs.Aside, FilesRefused: cs.FilesRefused,
		Paused: cs.Paused != "", PausedReason: cs.Paused, PausedNext: cs.Resume, Nodes: cs.Nodes,
		DeletionsInProgress: cs.Deleting, DeletionsOverdue: cs.Overdue, Hint: shown(cs.Hint),
		Checks: []wire.CheckStatus{}, Deviating: []wire.TargetStatus{},
	}
	for i := range found.Checks {
		k := &found.Checks[i]
		out.Checks = append(out.Checks, checkStatus(k))
		for j := range k.Targets {
			if t := &k.Targets[j]; t.Verdict != policy.Healthy && t.Verdict != policy.Skipped {
				out.Deviating = append(out.Deviating, wire.TargetStatus{
					Node: t.Node, Machine: t.Machine, Check: checkName(k.ID()), Verdict: string(t.Verdict), Reason: string(t.Reason), Message: shown(t.Message), Since: t.Since,
				})
			}
		}
	}
	out.Checks, out.ChecksMore = share(out.Checks, maxChecksShown, func(k wire.CheckStatus) string { return k.Namespace })
	out.Deviating, out.DeviatingMore = share(out.Deviating, maxTargetsShown, func(t wire.TargetStatus) string { return namespaceIn(t.Check) })
	return out
}

// problemReason is the code of what keeps fenced from acting in a cluster.
func problemReason(cs *engine.ClusterStatus) reason.Code {
	if cs.ViewBad == "" && cs.Idle != "" {
		return reason.NotOwner
	}
	return cs.ViewReason
}

func checkStatus(k *policy.CheckReport) wire.CheckStatus {
	out := wire.CheckStatus{
		Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, State: string(k.State), Message: shown(k.Message),
		Expected: k.Expected, Healthy: k.Healthy, Allowed: k.Allowed, RemediationsAllowed: k.RemediationsAllowed,
		SelectsNothing: k.SelectsNothing(), LimitIsZero: k.LimitRoundsToZero(),
	}
	if g := k.LimitGate(); k.State == policy.StateActive && !g.Pass {
		out.Reason, out.Limit = string(g.Reason), g.Threshold
	}
	return out
}

func (c control) Explain(ctx context.Context, cluster, of string) (wire.Explanation, error) {
	explain, asked := c.engine.Explain, wire.Order{Cluster: cluster, Node: of}
	if strings.Contains(of, "/") {
		explain, asked.Node, asked.Machine = c.engine.ExplainMachine, "", of
	}
	x, err := explain(ctx, cluster, of)
	if gone := c.openOn(asked); gone != nil && isAbsent(err) {
		x, err = admit.Explanation{Cluster: gone.Target.Cluster, Node: gone.Target.Node, Machine: asked.Machine, Run: gone}, nil
	}
	if err != nil {
		return wire.Explanation{}, c.refusal(asked, err)
	}
	out := explanationOf(x)
	if x.Run != nil {
		out.Run.OffReads = c.record(*x.Run).OffReads
	}
	out.Class = string(reason.ClassOf(reason.Code(out.Refused)))
	for i := range out.Gates {
		out.Gates[i].Class = reason.ClassOf(out.Gates[i].Reason)
	}
	return out, nil
}

func explanationOf(x admit.Explanation) wire.Explanation {
	out := wire.Explanation{Cluster: x.Cluster, Node: x.Node, Machine: x.Machine, Verdict: string(x.Verdict), Message: "no gate known so far forbids it", Earliest: x.Earliest, Gates: x.Gates}
	for _, g := range x.Gates {
		if !g.Pass {
			out.Refused, out.Message = string(g.Reason), g.Name+": "+g.Value
			break
		}
	}
	if x.Run == nil {
		return out
	}
	rec := wire.FromRun(*x.Run)
	out.Run = &rec
	if x.Run.Open() {
		out.Refused = string(reason.UnderRemediation)
		out.Message, out.Next = standing(x.Run)
	}
	if x.Run.Step.Idle() { // what keeps the node is why the run stopped
		out.Refused = string(x.Run.Reason)
	}
	return out
}

// Runs implements api.Daemon. Of a Node or a Machine without runs it tells whether there is one at all.
func (c control) Runs(ctx context.Context, f wire.RunFilter) (wire.Timeline, error) {
	t := wire.Timeline{Runs: []wire.RunRecord{}}
	if err := c.checkCluster(f.Cluster); err != nil {
		return t, err
	}
	runs := c.engine.Runs(f.Cluster)
	slices.SortFunc(runs, func(a, b remediate.Run) int { return cmp.Or(a.Began().Compare(b.Began()), cmp.Compare(a.ID, b.ID)) })
	for _, r := range runs {
		if (f.ID == "" || r.ID == f.ID) && (f.Node == "" || r.Target.Node == f.Node) && (f.Machine == "" || r.Target.MachineKey() == f.Machine) && !r.Began().Before(f.Since) {
			t.Runs = append(t.Runs, c.record(r))
		}
	}
	c.addNotes(&t, f)
	if f.Node+f.Machine == "" || len(t.Runs) > 0 {
		return t, nil
	}
	explain, name := c.engine.Explain, f.Node
	if f.Machine != "" {
		explain, name = c.engine.ExplainMachine, f.Machine
	}
	if _, err := explain(ctx, f.Cluster, name); isAbsent(err) {
		return t, apiError(wire.Order{Cluster: f.Cluster, Node: f.Node, Machine: f.Machine}, err)
	}
	return t, nil
}

// record gives the record of a run, with the reads of Off that this process has made for it.
func (c control) record(r remediate.Run) wire.RunRecord {
	rec := wire.FromRun(r)
	for _, read := range engine.NewLookup(c.engine).OffReads(r.Target.Cluster, r.ID) {
		rec.OffReads = append(rec.OffReads, wire.OffRead{At: read.At, Device: shown(read.Devices)})
	}
	return rec
}

// Stream implements api.Daemon.
func (c control) Stream() string { return c.events.ID() }

// Events implements api.Daemon.
func (c control) Events(ctx context.Context, after uint64) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		for e := range c.events.Follow(ctx, after) {
			out := wireEvent(e)
			if out.Stream = c.events.ID(); !yield(out, nil) {
				return
			}
		}
	}
}

// Export implements api.Daemon.
func (c control) Export(ctx context.Context, w io.Writer) error {
	_, err := state.Export(ctx, c.store, w)
	return err
}

func wireEvent(e event.Event) wire.Event {
	out := wire.Event{Seq: e.Seq, At: e.At, Cluster: e.Cluster, Node: e.Node, Machine: e.Machine, Run: e.Run, Type: e.Type,
		Step: string(e.Step), Reason: string(e.Reason), Class: string(reason.ClassOf(e.Reason)), Message: e.Message}
	if e.Type == event.Acting {
		out.Message = string(e.Action)
	}
	return out
}

// clusterNames is the one cluster that was named, or all of them.
func (c control) clusterNames(cluster string) []string {
	if cluster != "" {
		return []string{cluster}
	}
	var names []string
	for _, cs := range c.engine.Status() {
		names = append(names, cs.Name)
	}
	return names
}

// requests lists the oldest open remediation requests of a cluster, and says how many more there are.
func (c control) requests(cluster string) (list []wire.RequestStatus, more int) {
	open, more := engine.NewLookup(c.engine).Requests(cluster, time.Now())
	for i := range open {
		list = append(list, requestStatus(&open[i]))
	}
	return list, more
}

func requestStatus(s *admit.RequestState) wire.RequestStatus {
	out := wire.RequestStatus{
		Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name, Node: s.Target.Node, Machine: s.Target.MachineKey(),
		Phase: s.Status.Phase, Run: s.Status.Run, Finalizer: s.HasFinalizer,
	}
	if conditions := s.Status.Conditions; len(conditions) > 0 { // all say the same
		out.Reason, out.Message = conditions[0].Reason, conditions[0].Message
	}
	return out
}

// What an answer lists of a cluster: whoever may write objects in one namespace must not make the
// answer too long to read, nor keep what is of others out of it.
const (
	maxChecksShown  = 2000
	maxTargetsShown = 10_000
	maxShownText    = 1024 // bytes of a message
)

// share keeps at most that many of a list, in its order, and says how many it left out. If there
// are more, the namespaces have equal shares; of more namespaces than that the first in the list have one each.
// What has no namespace is of administrators, and has a share in any case.
func share[T any](list []T, most int, namespace func(T) string) (kept []T, more int) {
	if len(list) <= most {
		return list, 0
	}
	counts := map[string]int{}
	for _, x := range list {
		counts[namespace(x)]++
	}
	each := shareOfEach(counts, most)
	free := most - min(counts[""], each) // administrators have their share, however many namespaces there are
	clear(counts)
	for _, x := range list {
		in := namespace(x)
		if counts[in] == each || in != "" && free == 0 {
			continue
		}
		if in != "" {
			free--
		}
		counts[in]++
		kept = append(kept, x)
	}
	return kept, len(list) - len(kept)
}

// shareOfEach returns how many each namespace may have, so that together they have at most that
// many. A namespace that needs less leaves the rest to the others. It is one if there are more namespaces than that.
func shareOfEach(counts map[string]int, most int) int {
	sizes := make([]int, 0, len(counts))
	for _, n := range counts {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	for i, n := range sizes {
		left := len(sizes) - i
		if n*left > most {
			return max(1, most/left)
		}
		most -= n
	}
	return sizes[len(sizes)-1]
}

// namespaceIn returns the namespace of a "namespace/name", or of a "kind namespace/name"; "" if it names none.
func namespaceIn(key string) string {
	before, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return before[strings.LastIndex(before, " ")+1:]
}

// shown is the start of a text that others may have written.
func shown(text string) string {
	if len(text) <= maxShownText {
		return text
	}
	return strings.ToValidUTF8(text[:maxShownText], "") + "..."
}

// blockedIn lists what is refused now in one cluster.
func blockedIn(cs engine.ClusterStatus) []wire.Blocked {
	list := make([]wire.Blocked, 0, len(cs.Refused))
	for i := range cs.Refused {
		r := &cs.Refused[i]
		list = append(list, wire.Blocked{
			Cluster: cs.Name, Node: r.Node, Machine: r.Machine, Check: checkOf(r), Run: r.Run, Reason: string(r.Gate.Reason),
			Class: string(reason.ClassOf(r.Gate.Reason)), Message: shown(r.Gate.Why()), Next: nextOf(cs.Name, r), Since: r.Since.UTC(), NextTry: r.NextTry.UTC(),
		})
	}
	return list
}

// nextOf is what a person can do about a refusal. What passes by itself needs nobody; but a BMC that does not answer may
// be as dead as its host.
func nextOf(cluster string, r *admit.Refused) string {
	code := r.Gate.Reason
	if reason.ClassOf(code) == reason.Transient && !r.NextTry.IsZero() && code != reason.OfBMC(string(bmc.KindUnreachable)) {
		return ""
	}
	o := wire.OrderOn(cluster, r.Node, r.Machine)
	o.Run = r.Run
	return refusalHint(o, code)
}

// checkOf is the kind and name of the check behind a refusal.
func checkOf(r *admit.Refused) string {
	if r.Check != (policy.CheckID{}) {
		return checkName(r.Check)
	}
	kind, name, _ := strings.Cut(r.CheckID, " ") // of a Waiting run: kind.group, name, and perhaps a file
	kind, _, _ = strings.Cut(kind, ".")
	name, _, _ = strings.Cut(name, " in ")
	return strings.TrimSpace(kind + " " + name)
}

// blockedOn lists what is refused now of some Nodes and Machines, in one cluster or in all.
func (c control) blockedOn(cluster string, names []string) (list []wire.Blocked) {
	for _, cs := range c.engine.Status() {
		if cluster != "" && cs.Name != cluster {
			continue
		}
		list = append(list, slices.DeleteFunc(blockedIn(cs), func(b wire.Blocked) bool {
			return !slices.Contains(names, cmp.Or(b.Node, b.Machine)) && !slices.Contains(names, b.Machine)
		})...)
	}
	return list
}

// recalledNotes are those of the time before the start, as far as the audit log can be read.
func recalledNotes(path string, log *zap.Logger) *timeline.Notes {
	n := timeline.New()
	if err := n.Recall(path); err != nil {
		log.Warn("timelines begin now: the end of the audit log cannot be read", zap.String("file", path), zap.Error(err))
	}
	return n
}

// runStatus is the line of an open run, with its last error.
func (c control) runStatus(r remediate.Run) wire.RunStatus {
	s := wire.StatusOfRun(r)
	s.LastError, s.Next = c.notes.LastError(r.ID), nextOfRun(&r)
	return s
}

// nextOfRun is the verb with which a person gets a run that rests going again; "" if it is on its way.
func nextOfRun(r *remediate.Run) string {
	if !r.Step.Idle() {
		return ""
	}
	o := wire.Order{Cluster: r.Target.Cluster, Node: r.Target.Node, Machine: r.Target.WithoutNode()}
	back := "bring the host back with " + withReason(o.Command("unfence"))
	if r.Reason == reason.FalseOff { // while it is frozen, retry and confirm-off are refused // I5
		return back + "; it is frozen: find out why its BMC read Off, then " + withReason(o.Command("bmc unfreeze"))
	}
	var all []string
	if may, _ := remediate.CanRetry(*r); may {
		all = append(all, "mend the cause, then "+withReason("fencectl retry "+r.ID))
	} else {
		all = append(all, back)
	}
	if may, _ := remediate.CanConfirm(*r); may && confirmationHelps(r.Reason) {
		all = append(all, "or go there, cut its mains, then "+withReason(o.Command("confirm-off")))
	}
	return strings.Join(all, "; ")
}

// confirmationHelps says whether a manual confirmation replaces what stopped a run. Of another remediator, a target that was replaced
// and the like the confirmation is refused, too, and nobody need go there. // I26
func confirmationHelps(code reason.Code) bool {
	switch code {
	case reason.PowerOffFailed, reason.NoHost, reason.SecretMissing, reason.ConfirmedOffContradicted:
		return true
	}
	return aboutAnswer(code)
}

// addNotes adds to the timeline of a Node or a run what happened beside the steps, and what forbids
// the remediation now. Of a run, only what happened while it was open counts.
func (c control) addNotes(t *wire.Timeline, f wire.RunFilter) {
	for i := range t.Runs {
		if t.Runs[i].Ended.IsZero() {
			t.Runs[i].LastError = c.notes.LastError(t.Runs[i].ID)
		}
	}
	if f.Node == "" && f.Machine == "" && f.ID == "" {
		return
	}
	for i := range t.Runs {
		c.notes.AddCourse(&t.Runs[i])
	}
	names, cluster := []string{f.Node, f.Machine}, f.Cluster
	for _, r := range t.Runs {
		names = append(names, r.Node, r.Machine)
		cluster = cmp.Or(cluster, r.Cluster)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	t.Notes, t.Blocked = c.notes.Of(cluster, names...), c.blockedOn(cluster, names)
	if f.ID != "" {
		t.Notes = slices.DeleteFunc(t.Notes, func(n wire.Note) bool { return !timeline.During(n, t.Runs) })
		t.Blocked = slices.DeleteFunc(t.Blocked, func(b wire.Blocked) bool { return b.Run != f.ID })
	}
}
