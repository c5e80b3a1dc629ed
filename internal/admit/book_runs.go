package admit

import (
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// Own takes in the runs as the store has them at the begin of a leadership: from now on
// this instance's own memory of them is the newest. // I19
func (b *Book) Own(all []remediate.Run) {
	mine := b.Mine(all)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads = true
	b.runs.byID, b.moved = mine, true
}

// Disown ends what Own began.
func (b *Book) Disown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads = false
}

// Adopt takes in the runs as the store has them, and says so, unless this instance's own
// memory of them is newer.
func (b *Book) Adopt(all []remediate.Run) bool {
	mine := b.Mine(all)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.leads {
		b.runs.byID, b.moved = mine, true
	}
	return !b.leads
}

// Mine picks the cluster's runs, by ID.
func (b *Book) Mine(all []remediate.Run) map[string]remediate.Run {
	byID := map[string]remediate.Run{}
	for _, r := range all {
		if r.Target.Cluster == b.opt.Name {
			byID[r.ID] = r
		}
	}
	return byID
}

// put makes a run what others see.
func (b *Book) put(r remediate.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs.byID[r.ID], b.moved = r, true
	if !r.Open() {
		delete(b.runs.labels, r.ID)
	}
}

// drop takes back the place of a run that was not begun.
func (b *Book) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs.byID, id)
	delete(b.runs.labels, id)
	b.moved = true
}

// Run is the run with this ID.
func (b *Book) Run(id string) (remediate.Run, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, known := b.runs.byID[id]
	return r, known
}

// Runs lists all runs that are remembered, in no order.
func (b *Book) Runs() []remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.runs.byID))
}

// OpenRuns lists the open runs by ID.
func (b *Book) OpenRuns() []remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.open()
}

// AnyOpen says whether a run is open.
func (b *Book) AnyOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.anyOpen()
}

// OpenOn is the open run on a Node.
func (b *Book) OpenOn(node string) (remediate.Run, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.openOn(node)
}

// newestOn is the run that tells most about a Node: the open one, else the newest.
func (b *Book) newestOn(node string) *remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	var newest *remediate.Run
	for _, r := range b.runs.byID {
		if r.Target.Node == node && (newest == nil || r.Open() || !newest.Open() && r.ID > newest.ID) {
			newest = &r
		}
	}
	return newest
}

// endedOn lists the runs on the host of a target that have ended, the newest first.
func (b *Book) endedOn(t remediate.Target) []remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.ended(t)
}

// Unsettled compares the runs in flight with those that have slots. A run that is not
// stored yet takes its slot by itself, or not at all. // I11
func (b *Book) Unsettled(taken map[string]bool) (lacking, needless []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, r := range b.runs.byID {
		if inFlight(r) && r.Version > 0 && !taken[id] {
			lacking = append(lacking, id)
		}
	}
	for id := range taken {
		if r, known := b.runs.byID[id]; !known || !inFlight(r) {
			needless = append(needless, id)
		}
	}
	return lacking, needless
}

// Forget drops the runs that ended before that time, and what is remembered only for the
// sake of open and recent runs.
func (b *Book) Forget(ended, recent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.runs.byID, func(_ string, r remediate.Run) bool { // it had ended: nothing changes for the checks
		return !r.Open() && r.Ended.Before(ended)
	})
	maps.DeleteFunc(b.runs.labels, func(id string, _ map[string]string) bool { return !b.runs.byID[id].Open() })
	maps.DeleteFunc(b.well, func(_ string, until time.Time) bool { return until.Before(recent) })
}
