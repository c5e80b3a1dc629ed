package live

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Map is a small map that is read often and changed rarely. A change replaces the whole map, so
// whoever reads it needs no lock, and what All returned never changes. The zero value is empty.
type Map[V any] struct {
	writing sync.Mutex // held during a change
	now     atomic.Pointer[map[string]V]
}

// All returns every value by its name. The caller must not change the map.
func (m *Map[V]) All() map[string]V {
	if now := m.now.Load(); now != nil {
		return *now
	}
	return nil
}

// Get returns the value of a name; the zero value if there is none.
func (m *Map[V]) Get(name string) V { return m.All()[name] }

// Put adds or replaces a value.
func (m *Map[V]) Put(name string, value V) {
	m.change(func(next map[string]V) { next[name] = value })
}

// Delete removes the value of a name, if there is one.
func (m *Map[V]) Delete(name string) {
	m.change(func(next map[string]V) { delete(next, name) })
}

func (m *Map[V]) change(change func(next map[string]V)) {
	m.writing.Lock()
	defer m.writing.Unlock()
	next := maps.Clone(m.All())
	if next == nil {
		next = map[string]V{}
	}
	change(next)
	m.now.Store(&next)
}
