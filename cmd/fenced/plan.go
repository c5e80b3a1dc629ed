package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// Plan implements api.Daemon. A cluster whose watch is not complete has a
// problem; the others are told all the same.
func (c control) Plan(ctx context.Context, cluster string) (wire.Plan, error) {
	var out wire.Plan
	for _, name := range c.clusterNames(cluster) {
		p, err := c.engine.Plan(ctx, name)
		if cluster != "" && err != nil {
			return wire.Plan{}, apiError(wire.Order{Cluster: cluster}, err)
		}
		cl := wire.ClusterPlan{Cluster: name}
		cl.Actions, cl.ActionsMore = plannedActions(p)
		if err != nil {
			cl.Problem = err.Error()
		}
		if now, _ := engine.NewLookup(c.engine).Status(name); now.Mode != guard.ModeRespond { // where checks start nothing
			cl.Warnings = limitWarnings(now.Checks)
		}
		out.Clusters = append(out.Clusters, cl)
	}
	return out, nil
}

func limitWarnings(checks []policy.CheckReport) (list []string) {
	for i := range checks {
		if zero := checks[i].LimitRoundsToZero(); zero != "" {
			list = append(list, checkName(checks[i].ID())+": "+zero)
		}
	}
	list, _ = share(list, maxChecksShown, namespaceIn)
	return list
}

// plannedActions is a plan as the API says it, and how many more actions there are.
func plannedActions(p admit.Plan) (all []wire.PlannedAction, more int) {
	all = []wire.PlannedAction{}
	for i, item := range p.Items {
		a := wire.PlannedAction{
			Order: i + 1, Check: checkName(item.Check), Machine: item.Machine, Node: item.Node, Action: string(item.Action),
			Message: shown(item.Trigger), Gate: item.Gate,
		}
		if item.Gate != nil {
			a.Refused, a.Earliest = string(item.Gate.Reason), item.Earliest
		}
		all = append(all, a)
	}
	return share(all, maxTargetsShown, func(a wire.PlannedAction) string { return namespaceIn(a.Check) })
}

// planArmed is what would be fenced in a cluster, or in the only one, once it is armed and the quiet
// period is over. A cluster that was not seen yet has a problem, and may be armed all the same.
func (c control) planArmed(ctx context.Context, cluster string) *wire.ClusterPlan {
	p, err := c.engine.Arming.Plan(ctx, cluster)
	out := &wire.ClusterPlan{Cluster: cluster}
	out.Actions, out.ActionsMore = plannedActions(p)
	if cluster == "" {
		out.Cluster = c.clusterNames("")[0]
	}
	if err != nil {
		out.Problem = err.Error()
	}
	return out
}

// Coverage implements api.Daemon. A cluster whose watch is not complete has a
// problem; the others are told all the same.
func (c control) Coverage(_ context.Context, cluster string) (wire.Coverage, error) {
	var out wire.Coverage
	for _, name := range c.clusterNames(cluster) {
		covers, err := c.engine.Coverage(name)
		if cluster != "" && err != nil {
			return wire.Coverage{}, apiError(wire.Order{Cluster: cluster}, err)
		}
		cl := wire.ClusterCoverage{Cluster: name}
		if err != nil {
			cl.Problem = err.Error()
		}
		for i := range covers {
			cl.Checks = append(cl.Checks, checkCoverage(&covers[i]))
		}
		cl.Checks, cl.ChecksMore = share(cl.Checks, maxChecksShown, func(k wire.CheckCoverage) string { return k.Namespace })
		out.Clusters = append(out.Clusters, cl)
	}
	return out, nil
}

func checkCoverage(v *policy.Coverage) wire.CheckCoverage {
	k := wire.CheckCoverage{
		Kind: v.Check.Kind, Namespace: v.Check.Namespace, Name: v.Check.Name, Source: v.Check.Source, State: string(v.State),
		Message: shown(v.Message), Targets: v.Targets, Limit: v.Limit, MaxUnhealthy: v.MaxUnhealthy,
	}
	for _, f := range v.Findings {
		k.Findings = append(k.Findings, wire.Finding(f))
	}
	for _, o := range v.Overlaps {
		k.Overlaps = append(k.Overlaps, wire.Overlap{Check: checkName(o.Check), Targets: o.Targets})
	}
	return k
}

// addSlips notes which active checks have a rule for a condition that no Node has, but for a slip.
func addSlips(checks []wire.CheckStatus, slips map[policy.CheckID]string) {
	for id, slip := range slips {
		at := slices.IndexFunc(checks, func(k wire.CheckStatus) bool {
			return k.Kind == id.Kind && k.Namespace == id.Namespace && k.Name == id.Name
		})
		if at >= 0 {
			checks[at].UnknownCondition = slip
		}
	}
}

// checkName is a check as people write it.
func checkName(id policy.CheckID) string {
	return id.Kind + " " + strings.TrimPrefix(id.Namespace+"/"+id.Name, "/")
}

// Names implements api.Daemon.
func (c control) Names(_ context.Context, cluster, prefix string) (wire.Names, error) {
	var n wire.Names
	for _, cs := range c.engine.Status() {
		if strings.HasPrefix(cs.Name, prefix) {
			n.Clusters = append(n.Clusters, cs.Name)
		}
		if cluster != "" && cluster != cs.Name {
			continue
		}
		nodes, machines := c.engine.Names(cs.Name, prefix)
		n.Nodes, n.Machines = append(n.Nodes, nodes...), append(n.Machines, machines...)
		for i := range cs.Checks {
			k := &cs.Checks[i]
			n.Checks = append(n.Checks, strings.TrimPrefix(k.Namespace+"/"+k.Name, "/"))
		}
	}
	n.Checks = slices.DeleteFunc(n.Checks, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	runs := c.engine.Runs(cluster)
	slices.SortFunc(runs, func(a, b remediate.Run) int { return cmp.Or(b.Began().Compare(a.Began()), cmp.Compare(b.ID, a.ID)) })
	for _, r := range runs {
		if !strings.HasPrefix(r.ID, prefix) {
			continue
		}
		n.Runs = append(n.Runs, r.ID)
		if r.Open() {
			n.OpenRuns = append(n.OpenRuns, r.ID)
		}
	}
	for _, list := range []*[]string{&n.Clusters, &n.Nodes, &n.Machines, &n.Checks} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, list := range []*[]string{&n.Clusters, &n.Nodes, &n.Machines, &n.Checks, &n.Runs, &n.OpenRuns} {
		*list = (*list)[:min(len(*list), wire.MaxNames)]
	}
	return n, nil
}
