package state

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// Table holds the records of one kind as this process knows them. It reads and writes
// them by compare-and-set, so that several instances can share a store. Its lock is never
// held while the store is asked.
type Table[T any] struct {
	of      typed[T]
	changed func(T)

	mu  sync.Mutex
	all map[string]T
}

// newTable makes an empty table. changed is called with each record that came, changed or
// went; it may use the table.
func newTable[T any](of typed[T], changed func(T)) *Table[T] {
	return &Table[T]{of: of, changed: changed, all: map[string]T{}}
}

// Get is the record under a key, as it is known here; the zero value when there is none.
func (t *Table[T]) Get(key string) (v T, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, known = t.all[key]
	return v, known
}

// All are the known records in the order of their keys.
func (t *Table[T]) All() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]T, 0, len(t.all))
	for _, key := range slices.Sorted(maps.Keys(t.all)) {
		list = append(list, t.all[key])
	}
	return list
}

// Load takes in what the store has. What cannot be read leaves what was known, and so does
// what was stored here while the store was read.
func (t *Table[T]) Load(ctx context.Context, s Store) error {
	t.mu.Lock()
	before := maps.Clone(t.all)
	t.mu.Unlock()
	list, err := t.of.list(ctx, s)
	for _, v := range list {
		t.put(v)
		delete(before, t.of.key(v))
	}
	if err == nil {
		for _, v := range before {
			t.drop(v)
		}
	}
	return err
}

// put notes a record as it was stored. An older one than is known changes nothing.
func (t *Table[T]) put(v T) {
	t.mu.Lock()
	key := t.of.key(v)
	old, known := t.all[key]
	newer := !known || *t.of.version(&v) > *t.of.version(&old)
	if newer {
		t.all[key] = v
	}
	t.mu.Unlock()
	if newer {
		t.changed(v)
	}
}

// drop forgets that very version of a record.
func (t *Table[T]) drop(v T) {
	t.mu.Lock()
	key := t.of.key(v)
	now, known := t.all[key]
	same := known && *t.of.version(&now) == *t.of.version(&v)
	if same {
		delete(t.all, key)
	}
	t.mu.Unlock()
	if same {
		t.changed(v)
	}
}

// Update stores what to makes of a record, on top of whatever another instance, or a write
// whose answer was lost, has made of it. to says whether there is anything to store; it may
// be called several times, the first with what is known here. Nothing changes in the table
// when the store refuses.
func (t *Table[T]) Update(ctx context.Context, s Store, key string, to func(old T, known bool) (next T, write bool)) (T, error) {
	const conflicts = 3
	for again := 0; ; again++ {
		old, known := t.Get(key)
		next, write := to(old, known)
		if !write {
			return old, nil
		}
		*t.of.version(&next) = *t.of.version(&old)
		saved, err := t.of.save(ctx, s, next)
		if err == nil {
			t.put(saved)
			return saved, nil
		}
		if again == conflicts || !errors.Is(err, ErrConflict) && !errors.Is(err, ErrExists) {
			return next, err
		}
		if unread := t.reload(ctx, s, old, known, key); unread != nil {
			return next, errors.Join(err, unread)
		}
	}
}

// reload takes in one record, of which old was known.
func (t *Table[T]) reload(ctx context.Context, s Store, old T, known bool, key string) error {
	stored, err := t.of.get(ctx, s, key)
	switch {
	case err == nil:
		t.put(stored)
	case errors.Is(err, ErrNotFound):
		if known {
			t.drop(old)
		}
	default:
		return err
	}
	return nil
}

// Delete removes a record, unless there is a newer one: ErrConflict. One that is gone
// already is no error.
func (t *Table[T]) Delete(ctx context.Context, s Store, v T) error {
	if err := t.of.delete(ctx, s, v); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	t.drop(v)
	return nil
}
