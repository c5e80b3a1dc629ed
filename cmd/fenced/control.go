package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

// control is the engine as the control socket sees it: it only translates.
type control struct {
	engine  *engine.Engine
	sweep   *sweep.Sweep
	events  *engine.Stream
	version string
}

func (c control) Status(context.Context) (api.Status, error) {
	s := api.Status{Version: c.version, Armed: true, Clusters: []api.ClusterStatus{}, Runs: []api.RunStatus{}}
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
		s.Clusters = append(s.Clusters, clusterStatus(cs, found))
		for _, r := range cs.Runs {
			s.Runs = append(s.Runs, api.StatusOfRun(r))
		}
	}
	s.Paused = paused > 0 && paused == len(s.Clusters)
	if !s.Paused {
		s.PausedReason = ""
	}
	return s, nil
}

func clusterStatus(cs engine.ClusterStatus, found policy.Report) api.ClusterStatus {
	out := api.ClusterStatus{
		// The state file's lock makes this the only instance, and the first epoch the last.
		Name: cs.Name, Mode: cs.Mode, Owner: true, Epoch: 1, ViewAgeSeconds: cs.View.Age.Seconds(), Problem: cs.ViewBad,
		Paused: cs.Paused != "", PausedReason: cs.Paused, Nodes: cs.Nodes,
		Checks: []api.CheckStatus{}, Deviating: []api.TargetStatus{},
	}
	for i := range found.Checks {
		k := &found.Checks[i]
		out.Checks = append(out.Checks, api.CheckStatus{
			Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, State: string(k.State), Message: k.Message,
			Expected: k.Expected, Healthy: k.Healthy, Allowed: k.Allowed, RemediationsAllowed: k.RemediationsAllowed,
		})
		for j := range k.Targets {
			if t := &k.Targets[j]; t.Verdict != policy.Healthy && t.Verdict != policy.Skipped {
				out.Deviating = append(out.Deviating, api.TargetStatus{
					Node: t.Node, Machine: t.Machine, Verdict: string(t.Verdict), Reason: string(t.Reason), Message: t.Message, Since: t.Since,
				})
			}
		}
	}
	return out
}

func (c control) Explain(ctx context.Context, cluster, node string) (api.Explanation, error) {
	x, err := c.engine.Explain(ctx, cluster, node)
	if err != nil {
		return api.Explanation{}, apiError(err)
	}
	out := api.Explanation{Cluster: x.Cluster, Node: x.Node, Verdict: string(x.Verdict), Message: "no gate known so far forbids it", Earliest: x.Earliest, Gates: x.Gates}
	for _, g := range x.Gates {
		if !g.Pass {
			out.Refused, out.Message = string(g.Reason), g.Name+": "+g.Value
			break
		}
	}
	if x.Run == nil {
		return out, nil
	}
	rec := api.FromRun(*x.Run)
	out.Run = &rec
	if x.Run.Open() {
		out.Refused = string(policy.UnderRemediation)
		out.Message = strings.TrimSuffix("run "+x.Run.ID+" is open, step "+string(x.Run.Step)+": "+x.Run.Note, ": ")
	}
	if x.Run.Step == remediate.Held { // what keeps the node is why the run is held
		out.Refused = x.Run.Reason
	}
	return out, nil
}

func (c control) Runs(_ context.Context, f api.RunFilter) (api.Timeline, error) {
	t := api.Timeline{Runs: []api.RunRecord{}}
	for _, r := range slices.Backward(c.engine.Runs(f.Cluster)) {
		if (f.ID == "" || r.ID == f.ID) && (f.Node == "" || r.Target.Node == f.Node) && !r.Started.Before(f.Since) {
			t.Runs = append(t.Runs, api.FromRun(r))
		}
	}
	return t, nil
}

func (c control) Do(ctx context.Context, o api.Order) (api.OrderResult, error) {
	order := engine.Order{Cluster: o.Cluster, Node: o.Node, Actor: o.Actor, Reason: o.Reason, OffOnly: o.OffOnly, DryRun: o.DryRun}
	var out engine.Outcome
	var err error
	message := string(o.Verb) + " done"
	switch o.Verb {
	case api.Fence:
		out, err = c.engine.Fence(ctx, order)
		message = fenceMessage(o, out)
	case api.Unfence:
		out, err = c.engine.Unfence(ctx, order)
		message = "run " + out.Run + " brings " + o.Node + " back"
	case api.Pause:
		err = c.engine.Pause(ctx, order)
	case api.Resume:
		err = c.engine.Resume(ctx, order)
	case api.EnrollBMC:
		return c.enroll(ctx, order)
	case api.ReleaseBMC:
		err = c.engine.Release(ctx, order)
		message = released(o.Node, c.engine.StillFrozen(order))
	case api.Arm, api.Disarm:
		err = c.engine.Arm(ctx, order, o.Verb == api.Arm)
	default:
		err = fmt.Errorf("no verb %q", o.Verb)
	}
	res := api.OrderResult{Run: out.Run, Joined: out.Joined, Message: message, Gates: out.Gates}
	if o.Verb == api.Fence {
		res.Effect = effect(o)
	}
	if err != nil {
		return res, apiError(err)
	}
	return res, nil
}

// released tells what the end of a host's freezes came to; still is why it must not
// be switched off yet.
func released(node, still string) string {
	if still != "" {
		return "the freezes of " + node + " are ended, and it stays frozen for another: " + still
	}
	return node + " may be switched again"
}

func fenceMessage(o api.Order, out engine.Outcome) string {
	switch {
	case o.DryRun && !out.Joined:
		return o.Node + " would be fenced"
	case out.Joined:
		return "joined run " + out.Run + ", which already fences " + o.Node
	}
	return "run " + out.Run + " fences " + o.Node
}

func effect(o api.Order) []string {
	all := []string{
		"the power of " + o.Node + " is cut at once, without a shutdown",
		"once the BMC has read Off twice, its Node is isolated and its pods go elsewhere",
	}
	if o.OffOnly {
		return append(all, "the host stays off until unfence")
	}
	return append(all, "the host is powered on again, and its labels, annotations, taints and cordon are restored")
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

func wireEvent(e engine.Event) api.Event {
	out := api.Event{Seq: e.Seq, At: e.At, Cluster: e.Cluster, Node: e.Node, Run: e.Run, Type: e.Type,
		Step: string(e.Step), Reason: e.Reason, Message: e.Message}
	if e.Type == engine.EventAction {
		out.Message = string(e.Action)
	}
	return out
}

// apiError gives a refusal its place among the API's errors.
func apiError(err error) error {
	r, ok := errors.AsType[*engine.Refusal](err)
	if !ok {
		return err
	}
	switch r.Reason {
	case engine.NoSuchNode, engine.NoSuchCluster:
		return api.NotFound(r.Message, "see fencectl status -o wide for the names fenced knows")
	case engine.ClusterRequired:
		return api.BadRequest(r.Message, "add --cluster NAME")
	case engine.NoRun, policy.UnderRemediation:
		return api.Conflict(r.Message, "see fencectl status for the open runs")
	case policy.NotFrozen:
		return api.Conflict(r.Message, "fencectl bmc list shows what is refused, and why")
	}
	return api.Refused(string(r.Reason), r.Message, "see fencectl explain for every gate")
}
