package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// blockedIn lists what is refused now in one cluster.
func blockedIn(cs engine.ClusterStatus) []api.Blocked {
	list := make([]api.Blocked, 0, len(cs.Refused))
	for i := range cs.Refused {
		r := &cs.Refused[i]
		list = append(list, api.Blocked{
			Cluster: cs.Name, Node: r.Node, Machine: r.Machine, Check: checkOf(r), Run: r.Run, Reason: string(r.Gate.Reason),
			Class: string(reason.ClassOf(r.Gate.Reason)), Message: r.Gate.Why(), Since: r.Since.UTC(), NextTry: r.NextTry.UTC(),
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

// countBMCs counts the devices as bmc list does; nothing before the inventory was read.
func (c control) countBMCs(ctx context.Context) api.BMCCount {
	found, err := c.sweep.Results(ctx, "")
	if err != nil {
		return api.BMCCount{}
	}
	return wireBMCs(found).Count()
}

// runStatus is the line of an open run, with its last error.
func (c control) runStatus(r remediate.Run) api.RunStatus {
	s := api.StatusOfRun(r)
	s.LastError = c.notes.lastError(r.ID)
	return s
}

// addNotes adds to the timeline of a Node or a run what happened beside the steps, and what forbids
// the remediation now. Of a run, only what happened while it was open counts.
func (c control) addNotes(t *api.Timeline, f api.RunFilter) {
	for i := range t.Runs {
		if t.Runs[i].Ended.IsZero() {
			t.Runs[i].LastError = c.notes.lastError(t.Runs[i].ID)
		}
	}
	if f.Node == "" && f.ID == "" {
		return
	}
	names, cluster := []string{f.Node}, f.Cluster
	for _, r := range t.Runs {
		names = append(names, r.Node, r.Machine)
		cluster = cmp.Or(cluster, r.Cluster)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	t.Notes, t.Blocked = c.notes.of(cluster, names...), c.blockedOn(cluster, names)
	if f.ID != "" {
		t.Notes = slices.DeleteFunc(t.Notes, func(n api.Note) bool { return !duringRun(n, t.Runs) })
		t.Blocked = slices.DeleteFunc(t.Blocked, func(b api.Blocked) bool { return b.Run != f.ID })
	}
}

// duringRun says whether a note is about one of the runs, or about nothing else while it was open.
func duringRun(n api.Note, runs []api.RunRecord) bool {
	return slices.ContainsFunc(runs, func(r api.RunRecord) bool {
		if n.Run != "" {
			return n.Run == r.ID
		}
		return !n.At.Before(r.Started) && (r.Ended.IsZero() || !n.At.After(r.Ended))
	})
}
