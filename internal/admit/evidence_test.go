package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/suspend"
)

// quietWatch is a Watch of a cluster where nothing happens.
type quietWatch struct{}

func (quietWatch) Changes() []policy.Change { return nil }

func (quietWatch) Changed() <-chan struct{} { return nil }

func (quietWatch) View() View { return View{Synced: true} }

// readerOf gives an evidenceReader over a Book without Nodes, and lets this host be
// suspended for a time.
func readerOf(t *testing.T) (er *evidenceReader, suspendFor func(time.Duration)) {
	t.Helper()
	var total time.Duration
	awake := func() suspend.Awake { return suspend.StayAwake(func() time.Duration { return total }) }
	opt := Options{Book: NewBook(BookOptions{Name: "c"}, time.Now()), View: NewFreshness(FreshnessOptions{Watch: quietWatch{}, Awake: awake})}
	return newEvidenceReader(opt, func() {}), func(d time.Duration) {
		total += d
		opt.View.View()
	}
}

// A reading that ends after it was dropped does not count for the checks that wait now.
func TestReadingThatWasDroppedIsIgnored(t *testing.T) {
	er, _ := readerOf(t)
	old := er.markRunning("n-1")
	er.dropAllBut(nil, time.Now())
	fresh := er.markRunning("n-1")
	fresh.off = true
	er.recordReading("n-1", old, false, false)
	assert.True(t, fresh.running && fresh.off)
	er.recordReading("n-1", fresh, false, false)
	assert.False(t, fresh.running || fresh.off)
}

// The ledger no longer has a host as reading Off when the reading is too old, when no
// check waits for the host any longer, and after a suspend of this host. // I1, I16
func TestReadsOffIsWithdrawn(t *testing.T) {
	readsOff := func(er *evidenceReader) bool { return er.opt.Book.ledger.Snapshot().ReadsOff["n-1"] }
	told := func(t *testing.T) (*evidenceReader, func(time.Duration)) {
		er, suspendFor := readerOf(t)
		er.recordReading("n-1", er.markRunning("n-1"), true, false)
		er.updateBook(time.Now())
		assert.True(t, readsOff(er))
		return er, suspendFor
	}
	er, _ := told(t)
	er.updateBook(time.Now().Add(evidenceMaxAge + time.Second))
	assert.False(t, readsOff(er), "it is old")
	er, _ = told(t)
	er.dropAllBut(nil, time.Now())
	assert.False(t, readsOff(er), "nobody waits")
	er, suspendFor := told(t)
	running := er.markRunning("n-2")
	suspendFor(time.Minute)
	er.updateBook(time.Now())
	assert.False(t, readsOff(er), "this host was suspended")
	er.recordReading("n-2", running, true, false) // it was read in part before
	er.updateBook(time.Now())
	assert.False(t, er.opt.Book.ledger.Snapshot().ReadsOff["n-2"])
}
