package stop

import (
	"maps"
	"sync"
)

// unsavedStops are the stops that bind already and that the store has not saved yet.
type unsavedStops struct {
	mu    sync.Mutex
	byKey map[key]stop
}

// get returns the unsaved stop of a key. The zero value means that there is none.
func (u *unsavedStops) get(k key) stop {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.byKey[k]
}

func (u *unsavedStops) set(k key, v stop) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byKey[k] = v
}

// drop removes this stop, but not another one that has taken its place.
func (u *unsavedStops) drop(k key, v stop) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byKey[k] == v {
		delete(u.byKey, k)
	}
}

func (u *unsavedStops) all() map[key]stop {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.byKey)
}
