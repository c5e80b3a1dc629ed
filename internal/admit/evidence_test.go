package admit

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/suspend"
)

// quietWatch is a Watch of a cluster where nothing happens.
type quietWatch struct{}

func (quietWatch) Changes() []policy.Change { return nil }

func (quietWatch) Changed() <-chan struct{} { return nil }

func (quietWatch) View() View { return View{Synced: true} }

// readerOf gives an evidenceReader over two Nodes that have just become Unknown, with a check that acts at once if
// their hosts are off, and lets this host be suspended for a time.
func readerOf(t *testing.T) (er *evidenceReader, suspendFor func(time.Duration)) {
	t.Helper()
	var total time.Duration
	awake := func() suspend.Awake { return suspend.StayAwake(func() time.Duration { return total }) }
	opt := Options{Model: cluster.New(cluster.Options{Name: "c"}, time.Now()), View: NewFreshness(FreshnessOptions{Watch: quietWatch{}, Awake: awake})}
	now := time.Now()
	check := &policy.Check{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Source: "cluster",
		Strategy: policy.PowerCycleHosts, ShortenOnEvidence: true, Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Hour}}}
	changes := []policy.Change{{ID: policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}, Value: check}}
	for _, name := range []string{"n-1", "n-2"} {
		n := &policy.Node{Name: name, UID: "uid-" + name, Conditions: []policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: now}}}
		changes = append(changes, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: n})
	}
	opt.Model.Follow(now, changes, now)
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
	er.recordReading("n-1", old, false)
	assert.True(t, fresh.running && fresh.off)
	er.recordReading("n-1", fresh, false)
	assert.False(t, fresh.running || fresh.off)
}

// The ledger no longer has a host as reading Off when the reading is too old, when no
// check waits for the host any longer, and after a suspend of this host. // I1, I16
func TestReadsOffIsWithdrawn(t *testing.T) {
	readsOff := func(er *evidenceReader, node string) bool {
		for _, c := range er.opt.Model.Objects.ActingChecks(time.Now()) {
			if slices.ContainsFunc(c.Targets, func(t policy.TargetReport) bool { return t.Node == node && t.Acts() }) {
				return true
			}
		}
		return false
	}
	told := func(t *testing.T) (*evidenceReader, func(time.Duration)) {
		er, suspendFor := readerOf(t)
		er.recordReading("n-1", er.markRunning("n-1"), true)
		er.updateBook(time.Now())
		assert.True(t, readsOff(er, "n-1"))
		return er, suspendFor
	}
	er, _ := told(t)
	er.updateBook(time.Now().Add(evidenceMaxAge + time.Second))
	assert.False(t, readsOff(er, "n-1"), "it is old")
	er, _ = told(t)
	er.dropAllBut(nil, time.Now())
	assert.False(t, readsOff(er, "n-1"), "nobody waits")
	er, suspendFor := told(t)
	running := er.markRunning("n-2")
	suspendFor(time.Minute)
	er.updateBook(time.Now())
	assert.False(t, readsOff(er, "n-1"), "this host was suspended")
	er.recordReading("n-2", running, true) // it was read in part before
	er.updateBook(time.Now())
	assert.False(t, readsOff(er, "n-2"))
}
