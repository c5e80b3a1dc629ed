package main

import (
	"context"
	"strings"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/policy"
)

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

// Plan implements api.Daemon. A cluster whose watch is not complete has a
// problem; the others are told all the same.
func (c control) Plan(ctx context.Context, cluster string) (api.Plan, error) {
	var out api.Plan
	for _, name := range c.clusterNames(cluster) {
		p, err := c.engine.Plan(ctx, name)
		if cluster != "" && err != nil {
			return api.Plan{}, apiError(api.Order{Cluster: cluster}, err)
		}
		cl := api.ClusterPlan{Cluster: name}
		cl.Actions, cl.ActionsMore = plannedActions(p)
		if err != nil {
			cl.Problem = err.Error()
		}
		out.Clusters = append(out.Clusters, cl)
	}
	return out, nil
}

// plannedActions is a plan as the API says it, and how many more actions there are.
func plannedActions(p admit.Plan) (all []api.PlannedAction, more int) {
	all = []api.PlannedAction{}
	for i, item := range p.Items {
		a := api.PlannedAction{
			Order: i + 1, Check: checkName(item.Check), Machine: item.Machine, Node: item.Node, Action: string(item.Action),
			Message: shown(item.Trigger), Gate: item.Gate,
		}
		if item.Gate != nil {
			a.Refused, a.Earliest = string(item.Gate.Reason), item.Earliest
		}
		all = append(all, a)
	}
	return share(all, maxTargetsShown, func(a api.PlannedAction) string { return namespaceIn(a.Check) })
}

// planArmed is what would be fenced in a cluster, or in the only one, once it is armed and the quiet
// period is over. A cluster that was not seen yet has a problem, and may be armed all the same.
func (c control) planArmed(ctx context.Context, cluster string) *api.ClusterPlan {
	p, err := c.engine.Arming.Plan(ctx, cluster)
	out := &api.ClusterPlan{Cluster: cluster}
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
func (c control) Coverage(_ context.Context, cluster string) (api.Coverage, error) {
	var out api.Coverage
	for _, name := range c.clusterNames(cluster) {
		covers, err := c.engine.Coverage(name)
		if cluster != "" && err != nil {
			return api.Coverage{}, apiError(api.Order{Cluster: cluster}, err)
		}
		cl := api.ClusterCoverage{Cluster: name}
		if err != nil {
			cl.Problem = err.Error()
		}
		for i := range covers {
			cl.Checks = append(cl.Checks, checkCoverage(&covers[i]))
		}
		cl.Checks, cl.ChecksMore = share(cl.Checks, maxChecksShown, func(k api.CheckCoverage) string { return k.Namespace })
		out.Clusters = append(out.Clusters, cl)
	}
	return out, nil
}

func checkCoverage(v *policy.Coverage) api.CheckCoverage {
	k := api.CheckCoverage{
		Kind: v.Check.Kind, Namespace: v.Check.Namespace, Name: v.Check.Name, Source: v.Check.Source, State: string(v.State),
		Message: shown(v.Message), Targets: v.Targets, Limit: v.Limit, MaxUnhealthy: v.MaxUnhealthy,
	}
	for _, f := range v.Findings {
		k.Findings = append(k.Findings, api.Finding{Warning: f.Warning, Code: f.Code, Message: f.Message})
	}
	for _, o := range v.Overlaps {
		k.Overlaps = append(k.Overlaps, api.Overlap{Check: checkName(o.Check), Targets: o.Targets})
	}
	return k
}

// checkName is a check as people write it.
func checkName(id policy.CheckID) string {
	return id.Kind + " " + strings.TrimPrefix(id.Namespace+"/"+id.Name, "/")
}
