package admit

import (
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Door is where runs, and requests for other remediators, begin in one cluster. A reload closes it
// before it removes the cluster.
type Door struct{ b *Book }

// Close lets no run or request begin in the cluster any more, and no leadership, in which open runs would go
// on. If runs are open, it changes nothing, and returns them. A run is open from the moment at which
// it reserves its place, so none is between the two. // I11, I19
func (d Door) Close() (open []remediate.Run) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	open = d.b.runs.open()
	d.b.closed = len(open) == 0
	return open
}

// Open lets runs begin again.
func (d Door) Open() {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	d.b.closed = false
}

// errRemoved refuses what would begin while the door is closed.
func errRemoved() error {
	return &reason.Refusal{Reason: reason.NotOwner, Message: "the cluster is being removed from the configuration of this instance"}
}

// BeginLeadership sets the runs to those in the store. From now on the Book of this
// instance is newer than the store, until EndLeadership. It refuses while the door is
// closed. // I19
func (d Door) BeginLeadership(all []remediate.Run) error {
	mine := d.b.byID(all)
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if d.b.closed {
		return errRemoved()
	}
	d.b.leads = true
	d.b.runs.byID, d.b.runs.seenEnd, d.b.runsChanged = mine, map[string]bool{}, true
	return nil
}
