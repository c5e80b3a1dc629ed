package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// blockedIn lists what is refused now in one cluster.
func blockedIn(cs engine.ClusterStatus) []api.Blocked {
	list := make([]api.Blocked, 0, len(cs.Refused))
	for i := range cs.Refused {
		r := &cs.Refused[i]
		list = append(list, api.Blocked{
			Cluster: cs.Name, Node: r.Node, Machine: r.Machine, Check: checkOf(r), Run: r.Run, Reason: string(r.Gate.Reason),
			Class: string(reason.ClassOf(r.Gate.Reason)), Message: shown(r.Gate.Why()), Since: r.Since.UTC(), NextTry: r.NextTry.UTC(),
		})
	}
	return list
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
func (c control) blockedOn(cluster string, names []string) (list []api.Blocked) {
	for _, cs := range c.engine.Status() {
		if cluster != "" && cs.Name != cluster {
			continue
		}
		list = append(list, slices.DeleteFunc(blockedIn(cs), func(b api.Blocked) bool {
			return !slices.Contains(names, cmp.Or(b.Node, b.Machine)) && !slices.Contains(names, b.Machine)
		})...)
	}
	return list
}
