package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fenced/fenced/internal/state"
)

// memory is the durable content of the store.
type memory struct {
	mu      sync.Mutex
	version uint64
	records map[string]state.Record
}

func newMemory() *memory { return &memory{records: map[string]state.Record{}} }

func recordKey(k state.Kind, key string) string { return string(k) + "\x00" + key }

// Get implements state.Store.
func (m *memory) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	if err := ctx.Err(); err != nil {
		return state.Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[recordKey(kind, key)]
	if !ok {
		return r, fmt.Errorf("get %s %q: %w", kind, key, state.ErrNotFound)
	}
	r.Data = slices.Clone(r.Data)
	return r, nil
}

// Put implements state.Store.
func (m *memory) Put(ctx context.Context, r state.Record) (uint64, error) {
	return m.put(ctx, r, false)
}

func (m *memory) put(ctx context.Context, r state.Record, blind bool) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.records[recordKey(r.Kind, r.Key)]
	switch {
	case blind:
	case r.Version == 0 && exists:
		return 0, fmt.Errorf("put %s %q: %w", r.Kind, r.Key, state.ErrExists)
	case r.Version != old.Version:
		return 0, fmt.Errorf("put %s %q: %w", r.Kind, r.Key, state.ErrConflict)
	}
	m.version++
	r.Version, r.Data = m.version, slices.Clone(r.Data)
	m.records[recordKey(r.Kind, r.Key)] = r
	return m.version, nil
}

// Delete implements state.Store.
func (m *memory) Delete(ctx context.Context, kind state.Kind, key string, version uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, ok := m.records[recordKey(kind, key)]
	switch {
	case !ok:
		return fmt.Errorf("delete %s %q: %w", kind, key, state.ErrNotFound)
	case old.Version != version:
		return fmt.Errorf("delete %s %q: %w", kind, key, state.ErrConflict)
	}
	delete(m.records, recordKey(kind, key))
	return nil
}

// List implements state.Store.
func (m *memory) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []state.Record
	for _, r := range m.records {
		if r.Kind == kind {
			r.Data = slices.Clone(r.Data)
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b state.Record) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

// Watch implements state.Store; a fenced watches with its own storeClient.
func (m *memory) Watch(context.Context) <-chan struct{} { return nil }

// Close implements state.Store.
func (m *memory) Close() error { return nil }

// copy is a backup, replace puts one back. The versions of what is written later are new.
func (m *memory) copy() map[string]state.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.records)
}

func (m *memory) replace(records map[string]state.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = maps.Clone(records)
}
