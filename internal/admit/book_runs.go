package admit

import (
	"maps"
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// EndLeadership lets UpdateRuns replace the runs again.
func (b *Book) EndLeadership() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads = false
}

// UpdateRuns replaces the runs by those in the store. While this instance leads it changes
// nothing and returns false, because the Book is newer.
func (b *Book) UpdateRuns(all []remediate.Run) bool {
	mine := byID(b.RunsOfCluster(all))
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.leads {
		b.runs.byID, b.runsChanged = mine, true
	}
	return !b.leads
}

// RunsOfCluster selects the runs of this cluster.
func (b *Book) RunsOfCluster(all []remediate.Run) (mine []remediate.Run) {
	for _, r := range all {
		if r.Target.Cluster == b.opt.Name {
			mine = append(mine, r)
		}
	}
	return mine
}

// byID returns runs by ID.
func byID(all []remediate.Run) map[string]*remediate.Run {
	byID := map[string]*remediate.Run{}
	for _, r := range all {
		byID[r.ID] = &r
	}
	return byID
}

// put adds or replaces a run.
func (b *Book) put(r remediate.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.runs.byID[r.ID]
	b.runsChanged = b.runsChanged || !openTarget(was).Equal(openTarget(&r)) // few saves change that
	if b.leads && was != nil && was.Open() && !r.Open() {
		b.runs.seenEnd[r.ID] = true
	}
	b.runs.byID[r.ID] = &r
}

// drop removes a run that was reserved and not started.
func (b *Book) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs.byID, id)
	b.runsChanged = true
}

// Run returns the run with this ID.
func (b *Book) Run(id string) (remediate.Run, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, known := b.runs.byID[id]
	if !known {
		return remediate.Run{}, false
	}
	return *r, true
}

// Runs lists all runs of the Book, in no order.
func (b *Book) Runs() []remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]remediate.Run, 0, len(b.runs.byID))
	for _, r := range b.runs.byID {
		all = append(all, *r)
	}
	return all
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

// OpenOn returns the open run on a Node, or on the Machine "namespace/name".
func (b *Book) OpenOn(node string) (remediate.Run, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.openOn(node)
}

// newestOn returns the open run on a target's Node or Machine, else the newest that has ended,
// or nil. The run may be from before the Machine had a Node.
func (b *Book) newestOn(t remediate.Target) *remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	var newest *remediate.Run
	for _, r := range b.runs.byID {
		if (isOn(r, t.Node) || isOn(r, t.MachineKey())) && (newest == nil || r.Open() || !newest.Open() && r.ID > newest.ID) {
			newest = r
		}
	}
	if newest == nil {
		return nil
	}
	found := *newest
	return &found
}

// endedOn lists the runs on the host of a target that have ended, the newest first.
func (b *Book) endedOn(t remediate.Target) []remediate.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs.ended(t)
}

// SlotMismatches compares the runs in flight with the slots that are taken, both by run ID:
// lacking runs have no slot, needless slots have no run. A run that is not stored yet, or is reserved, takes
// its slot itself, within the limit, so it is not listed. // I11
func (b *Book) SlotMismatches(taken map[string]bool) (lacking, needless []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.runs.all()
	for id, r := range all.each() {
		if all.inFlight(r) && r.Version > 0 && !b.runs.reserved[id] && !taken[id] {
			lacking = append(lacking, id)
		}
	}
	for id := range taken {
		if r, known := all.find(id); !known || !all.inFlight(r) {
			needless = append(needless, id)
		}
	}
	return lacking, needless
}

// Forget removes the runs that ended before the time ended, and the data that only open
// runs or times after recent need.
func (b *Book) Forget(ended, recent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.runs.byID, func(_ string, r *remediate.Run) bool { // the checks depend only on open runs
		return !r.Open() && r.Ended.Before(ended)
	})
	maps.DeleteFunc(b.runs.seenEnd, func(id string, _ bool) bool { return b.runs.byID[id] == nil })
	b.replacements.forget(b.ledger)
	maps.DeleteFunc(b.stableUntil, func(_ string, until time.Time) bool { return until.Before(recent) })
}
