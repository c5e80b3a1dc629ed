package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/timeline"
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
	version  string
}

func (c control) Status(ctx context.Context) (api.Status, error) {
	s := api.Status{Version: c.version, LogLevel: c.level.String(), Armed: true, Clusters: []api.ClusterStatus{}, Runs: []api.RunStatus{}, Audit: c.auditStatus(), BMCs: c.countBMCs(ctx)}
	paused := 0
	for _, cs := range c.engine.Status() {
		s.Armed = s.Armed && cs.Armed
		if cs.Paused != "" {
			paused++
			s.PausedReason = cs.Paused
		}
		found, err := c.engine.Report(cs.Name)
		if err != nil { // not seen whole yet, which the cluster's problem says
			found = policy.Report{}
		}
		cluster := clusterStatus(cs, found)
		for _, h := range c.engine.Holds(cs.Name) {
			cluster.Holds = append(cluster.Holds, holdStatus(h))
		}
		cluster.Requests, cluster.RequestsMore = c.requests(cs.Name)
		s.Clusters = append(s.Clusters, cluster)
		blocked, more := share(blockedIn(cs), maxTargetsShown, func(b api.Blocked) string { return namespaceIn(b.Check) })
		s.Blocked, s.BlockedMore = append(s.Blocked, blocked...), s.BlockedMore+more
		for _, r := range cs.Runs {
			s.Runs = append(s.Runs, c.runStatus(r))
		}
	}
	s.Paused = paused > 0 && paused == len(s.Clusters)
	if !s.Paused {
		s.PausedReason = ""
	}
	return s, nil
}

// holdStatus is one hold. One of a Machine has its "namespace/name" as its name.
func holdStatus(h state.Hold) api.HoldStatus {
	out := api.HoldStatus{Node: h.Node, By: h.By, Reason: h.Reason, Since: h.At, Until: h.Until, Quarantine: h.Quarantine}
	if strings.Contains(h.Node, "/") {
		out.Node, out.Machine = "", h.Node
	}
	return out
}

// auditStatus says why the audit log cannot be written; nil when it can.
func (c control) auditStatus() *api.AuditStatus {
	since, err := c.audit.trouble()
	if err == nil {
		return nil
	}
	return &api.AuditStatus{Problem: err.Error(), Since: since, Missing: uint64(c.audit.failures())}
}

func clusterStatus(cs engine.ClusterStatus, found policy.Report) api.ClusterStatus {
	out := api.ClusterStatus{
		Name: cs.Name, Mode: cs.Mode, Armed: cs.Armed, Owner: cs.Owner, OwnerName: cs.OwnerName, Epoch: cs.Epoch,
		ViewAgeSeconds: cs.View.Age.Seconds(), Problem: cmp.Or(cs.ViewBad, cs.Idle), Aside: cs.Aside,
		Paused: cs.Paused != "", PausedReason: cs.Paused, Nodes: cs.Nodes,
		DeletionsInProgress: cs.Deleting, DeletionsOverdue: cs.Overdue, Hint: shown(cs.Hint),
		Checks: []api.CheckStatus{}, Deviating: []api.TargetStatus{},
	}
	for i := range found.Checks {
		k := &found.Checks[i]
		out.Checks = append(out.Checks, checkStatus(k))
		for j := range k.Targets {
			if t := &k.Targets[j]; t.Verdict != policy.Healthy && t.Verdict != policy.Skipped {
				out.Deviating = append(out.Deviating, api.TargetStatus{
					Node: t.Node, Machine: t.Machine, Check: checkName(k.ID()), Verdict: string(t.Verdict), Reason: string(t.Reason), Message: shown(t.Message), Since: t.Since,
				})
			}
		}
	}
	out.Checks, out.ChecksMore = share(out.Checks, maxChecksShown, func(k api.CheckStatus) string { return k.Namespace })
	out.Deviating, out.DeviatingMore = share(out.Deviating, maxTargetsShown, func(t api.TargetStatus) string { return namespaceIn(t.Check) })
	return out
}

func checkStatus(k *policy.CheckReport) api.CheckStatus {
	out := api.CheckStatus{
		Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, State: string(k.State), Message: shown(k.Message),
		Expected: k.Expected, Healthy: k.Healthy, Allowed: k.Allowed, RemediationsAllowed: k.RemediationsAllowed,
	}
	if g := k.LimitGate(); k.State == policy.StateActive && !g.Pass {
		out.Reason, out.Limit = string(g.Reason), g.Threshold
	}
	return out
}

func (c control) Explain(ctx context.Context, cluster, of string) (api.Explanation, error) {
	explain := c.engine.Explain
	if strings.Contains(of, "/") {
		explain = c.engine.ExplainMachine
	}
	x, err := explain(ctx, cluster, of)
	if err != nil {
		asked := api.Order{Cluster: cluster, Node: of}
		if strings.Contains(of, "/") {
			asked.Node, asked.Machine = "", of
		}
		return api.Explanation{}, apiError(asked, err)
	}
	out := explanationOf(x)
	out.Class = string(reason.ClassOf(reason.Code(out.Refused)))
	for i := range out.Gates {
		out.Gates[i].Class = reason.ClassOf(out.Gates[i].Reason)
	}
	return out, nil
}

func explanationOf(x admit.Explanation) api.Explanation {
	out := api.Explanation{Cluster: x.Cluster, Node: x.Node, Machine: x.Machine, Verdict: string(x.Verdict), Message: "no gate known so far forbids it", Earliest: x.Earliest, Gates: x.Gates}
	for _, g := range x.Gates {
		if !g.Pass {
			out.Refused, out.Message = string(g.Reason), g.Name+": "+g.Value
			break
		}
	}
	if x.Run == nil {
		return out
	}
	rec := api.FromRun(*x.Run)
	out.Run = &rec
	if x.Run.Open() {
		out.Refused = string(reason.UnderRemediation)
		out.Message = strings.TrimSuffix("run "+x.Run.ID+" is open, step "+string(x.Run.Step)+": "+x.Run.Note, ": ")
	}
	if x.Run.Step.Idle() { // what keeps the node is why the run stopped
		out.Refused = string(x.Run.Reason)
	}
	return out
}

// Runs implements api.Daemon. Of a Node without runs it tells whether there is one at all.
func (c control) Runs(ctx context.Context, f api.RunFilter) (api.Timeline, error) {
	t := api.Timeline{Runs: []api.RunRecord{}}
	runs := c.engine.Runs(f.Cluster)
	slices.SortFunc(runs, func(a, b remediate.Run) int { return cmp.Or(a.Began().Compare(b.Began()), cmp.Compare(a.ID, b.ID)) })
	for _, r := range runs {
		if (f.ID == "" || r.ID == f.ID) && (f.Node == "" || r.Target.Node == f.Node) && !r.Began().Before(f.Since) {
			t.Runs = append(t.Runs, api.FromRun(r))
		}
	}
	c.addNotes(&t, f)
	if f.Node != "" && len(t.Runs) == 0 {
		_, err := c.engine.Explain(ctx, f.Cluster, f.Node)
		if r, ok := errors.AsType[*reason.Refusal](err); ok && (r.Reason == reason.NoSuchNode || r.Reason == reason.NoSuchCluster) {
			return t, apiError(api.Order{Cluster: f.Cluster, Node: f.Node}, err)
		}
	}
	return t, nil
}

func (c control) Do(ctx context.Context, o api.Order) (api.OrderResult, error) {
	given := order.Order{
		Cluster: o.Cluster, Node: o.Node, Machine: o.Machine, Run: o.Run, Actor: o.Actor, Reason: o.Reason,
		OffOnly: o.OffOnly, DryRun: o.DryRun, AsIs: o.AsIs, Yes: o.Yes, For: time.Duration(o.For),
		Admin: o.Role == api.Admin, Viewer: o.Role == api.Viewer,
	}
	switch o.Verb {
	case api.EnrollBMC:
		return c.enroll(ctx, given)
	case api.LogLevel:
		return c.setLogLevel(o)
	case api.Reload:
		return c.reloader.order(ctx, o)
	}
	row, known := orders[o.Verb]
	if !known {
		return api.OrderResult{}, fmt.Errorf("no verb %q", o.Verb)
	}
	out, err := row.give(c, ctx, given)
	if r, refused := errors.AsType[*reason.Refusal](err); refused && out.Target != nil && r.Reason != reason.UnderRemediation { // only a dry run has a target
		return dryRunRefused(o, out, r), nil
	}
	if err != nil {
		return api.OrderResult{}, apiError(o, err)
	}
	res := api.OrderResult{
		Run: out.Run, Joined: out.Joined, Message: row.outcome(o, out), Gates: out.Gates, Target: targetOf(out.Target),
		Evidence: out.Evidence, Until: out.Until, Unchanged: out.Unchanged != "",
	}
	if row.effect != nil && out.Unchanged == "" {
		res.Effect = row.effect(o)
	}
	if o.Verb == api.Arm && o.DryRun && out.Unchanged == "" {
		res.Plan = c.planArmed(ctx, o.Cluster)
	}
	return res, nil
}

// Refused records what a person ordered and was refused: a role, a gate, a name that
// nobody knows; or what failed. // I24
func (c control) Refused(o api.Order, e *api.Error) {
	word := "refused: "
	if e.Status >= http.StatusInternalServerError { // it may yet be carried out
		word = "failed: "
	}
	c.events.Emit(event.Event{
		Type: event.Ordered, Cluster: o.Cluster, Node: o.Node, Machine: o.Machine, Run: o.Run, Actor: o.Actor, Why: o.Reason,
		Reason: reason.Code(e.Code), Message: word + string(o.Verb) + " by " + o.Actor + ": " + e.Message,
	})
}

func (c control) Events(ctx context.Context, after uint64) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for {
			batch, err := c.events.After(ctx, after)
			if err != nil {
				return // ctx ended: the reader went away
			}
			for _, e := range batch {
				after = e.Seq
				if !yield(wireEvent(e), nil) {
					return
				}
			}
		}
	}
}

func wireEvent(e event.Event) api.Event {
	out := api.Event{Seq: e.Seq, At: e.At, Cluster: e.Cluster, Node: e.Node, Machine: e.Machine, Run: e.Run, Type: e.Type,
		Step: string(e.Step), Reason: string(e.Reason), Message: e.Message}
	if e.Type == event.Acting {
		out.Message = string(e.Action)
	}
	return out
}
