//go:build failpoint

package failpoint

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// logbook knows every run as it was last saved or loaded. The name of a point
// contains the step of the run.
type logbook struct {
	mu   sync.Mutex
	runs map[string]remediate.Run
}

func newLogbook() *logbook { return &logbook{runs: map[string]remediate.Run{}} }

// decodeSaved decodes the run in a record; ok is false for another kind of
// record.
func decodeSaved(r state.Record) (run remediate.Run, ok bool) {
	saved := struct{ Data *remediate.Run }{&run}
	ok = r.Kind == state.KindRun && json.Unmarshal(r.Data, &saved) == nil
	return run, ok
}

// note records a run.
func (b *logbook) note(r state.Record) {
	run, ok := decodeSaved(r)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs[r.Key] = run
}

// saving returns the Node and the name of the point of a record. The name of a
// run's point contains its step, and the action that follows the save, or that a
// person ordered something.
func (b *logbook) saving(r state.Record) (node string, name []string) {
	run, ok := decodeSaved(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.runs[r.Key] // also for a backup, which has the run's key
	if !ok {
		return last.Target.Node, []string{string(r.Kind)}
	}
	why := ""
	switch {
	case ordered(run) > ordered(last):
		why = "ordered"
	case run.Intent != last.Intent:
		why = string(run.Intent.Action)
	}
	return run.Target.Node, []string{string(r.Kind), string(run.Step), why}
}

// ordered counts the orders of people in a run.
func ordered(r remediate.Run) (n int) {
	for _, o := range []*remediate.Order{r.Unfence, r.Abort, r.Retry, r.Confirmed} {
		if o != nil {
			n++
		}
	}
	return n
}

// failingStore has a point before and after every change in a store.
type failingStore struct {
	state.Store
	book *logbook
}

func (s failingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	node, name := s.book.saving(r)
	reach(node, append([]string{"before", "save"}, name...)...)
	version, err := s.Store.Put(ctx, r)
	if err == nil {
		s.book.note(r)
		reach(node, append([]string{"after", "save"}, name...)...)
	}
	return version, err
}

func (s failingStore) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	reach("", "before", "drop", string(kind))
	err := s.Store.Delete(ctx, kind, key, version)
	reach("", "after", "drop", string(kind))
	return err
}

func (s failingStore) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	list, err := s.Store.List(ctx, kind)
	for _, r := range list {
		s.book.note(r)
	}
	return list, err
}

// failingOwners returns claims whose stores have points.
type failingOwners struct {
	state.Owners
	book *logbook
}

func (o failingOwners) Run(ctx context.Context, guard func(context.Context, state.Claim)) error {
	return o.Owners.Run(ctx, func(ctx context.Context, c state.Claim) {
		c.Store = failingStore{Store: c.Store, book: o.book}
		guard(ctx, c)
	})
}
