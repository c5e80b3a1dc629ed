package main

import (
	"cmp"
	"slices"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/timeline"
)

// recalledNotes are those of the time before the start, as far as the audit log can be read.
func recalledNotes(path string, log *zap.Logger) *timeline.Notes {
	n := timeline.New()
	if err := n.Recall(path); err != nil {
		log.Warn("timelines begin now: the end of the audit log cannot be read", zap.String("file", path), zap.Error(err))
	}
	return n
}

// runStatus is the line of an open run, with its last error.
func (c control) runStatus(r remediate.Run) api.RunStatus {
	s := api.StatusOfRun(r)
	s.LastError = c.notes.LastError(r.ID)
	return s
}

// addNotes adds to the timeline of a Node or a run what happened beside the steps, and what forbids
// the remediation now. Of a run, only what happened while it was open counts.
func (c control) addNotes(t *api.Timeline, f api.RunFilter) {
	for i := range t.Runs {
		if t.Runs[i].Ended.IsZero() {
			t.Runs[i].LastError = c.notes.LastError(t.Runs[i].ID)
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
	t.Notes, t.Blocked = c.notes.Of(cluster, names...), c.blockedOn(cluster, names)
	if f.ID != "" {
		t.Notes = slices.DeleteFunc(t.Notes, func(n api.Note) bool { return !timeline.During(n, t.Runs) })
		t.Blocked = slices.DeleteFunc(t.Blocked, func(b api.Blocked) bool { return b.Run != f.ID })
	}
}
