package stop

import (
	"cmp"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

// key names what a stop is about: a Node by its name or a Machine by its "namespace/name", a
// cluster if node is empty, all clusters if both are empty.
type key struct{ cluster, node string }

// event completes an event about what the key names.
func (k key) event(e event.Event) event.Event {
	e.Cluster = k.cluster
	if strings.Contains(k.node, "/") {
		e.Machine = k.node
	} else {
		e.Node = k.node
	}
	return e
}

func compareKeys(a, b key) int {
	return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.node, b.node))
}

// stop is a person's pause or hold. The zero value means that there is none.
type stop struct {
	by, reason string
	at, until  time.Time // until is zero if a person must end the stop
}

// active reports whether there is a stop and its time is not over.
func (s stop) active(now time.Time) bool {
	return s.by != "" && (s.until.IsZero() || now.Before(s.until))
}

// orLonger returns s, or the active stop old if that ends no earlier. Then old continues with
// the name and the reason of the person who gave it.
func (s stop) orLonger(old stop, now time.Time) stop {
	if old.active(now) && (old.until.IsZero() || !s.until.IsZero() && !old.until.Before(s.until)) {
		return old
	}
	return s
}

// untilText is the end of a stop in a sentence; "" if it has none.
func untilText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until " + t.UTC().Format(time.RFC3339)
}

// pauseText says that a cluster, or everything, is paused.
func pauseText(cluster string, p stop) string {
	what := "cluster " + cluster
	if cluster == state.AllClusters {
		what = "everything"
	}
	return what + " is paused by " + p.by + untilText(p.until) + ": " + p.reason
}

// pauseOf is the pause in a cluster's record.
func pauseOf(r state.Cluster) stop {
	if !r.Paused {
		return stop{}
	}
	return stop{cmp.Or(r.PausedBy, "nobody known"), r.PausedReason, r.PausedAt, r.PausedUntil}
}

// holdOf is the hold in a record, unless a person released it.
func holdOf(h state.Hold) stop {
	if h.ReleasedBy != "" {
		return stop{}
	}
	return stop{h.By, h.Reason, h.At, h.Until}
}

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
