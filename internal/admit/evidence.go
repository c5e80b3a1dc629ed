package admit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

const (
	evidenceEvery       = 15 * time.Second // between two visits to one BMC
	evidenceMaxAge      = 30 * time.Second // older readings do not count
	evidenceParallel    = 8                // BMCs that are read at the same time
	evidenceTimeout     = 20 * time.Second // for one visit, with both readings
	evidenceSearchEvery = time.Second      // between two searches for targets
)

// evidence is what the BMC of one Node reads, while a check waits that would act at once on
// a host that is off.
type evidence struct {
	running bool
	off     bool      // two readings of Off
	applied bool      // the ledger has the host as reading Off
	at      time.Time // of the newest reading
	next    time.Time // no visit before
}

// evidenceReader reads the BMCs of hosts that a check waits for. Only the deciding goroutine
// writes the results to the Model, so an older result never replaces a newer one.
type evidenceReader struct {
	opt  Options
	wake func()

	mu         sync.Mutex
	byNode     map[string]*evidence
	wokeAt     time.Time // end of the last suspend; all readings are newer
	lastSearch time.Time // last search for targets; only for the deciding goroutine
}

// updateBook writes to the ledger which hosts read Off. A reading from before a suspend of
// this host, or older than evidenceMaxAge, no longer counts.
func (er *evidenceReader) updateBook(now time.Time) {
	_, wokeAt := er.opt.View.gapEnds()
	changed := map[string]bool{}
	er.mu.Lock()
	suspended := wokeAt.After(er.wokeAt)
	er.wokeAt = wokeAt
	for node, ev := range er.byNode {
		off := ev.off && !suspended && now.Sub(ev.at) <= evidenceMaxAge
		if off != ev.applied {
			ev.applied, changed[node] = off, off
		}
	}
	if suspended {
		clear(er.byNode)
	}
	er.mu.Unlock()
	for node, off := range changed {
		er.opt.Model.Objects.SetReadsOff(now, node, off)
	}
}

// startReads reads the BMCs of targets whose check waits, but would not wait for a host that
// reads Off. It returns when to call it again. mayAct is whether this instance may act on the
// cluster.
func (er *evidenceReader) startReads(mayAct bool, now time.Time) (due time.Time) {
	if again := er.lastSearch.Add(evidenceSearchEvery); now.Before(again) {
		return again
	}
	var wanted map[string]remediate.Run
	known := er.knownNodes()
	if mayAct {
		var anyShortens bool
		if wanted, anyShortens = er.opt.Model.Objects.DraftPending(known); anyShortens {
			er.lastSearch = now
		}
	}
	if len(wanted) == 0 && len(known) == 0 {
		return time.Time{} // no check waits for a host that reads Off
	}
	er.dropAllBut(wanted, now)
	nodes, due := er.choose(wanted, now)
	for _, node := range nodes {
		ev := er.markRunning(node)
		if !er.opt.Lead.Spawn(func(ctx context.Context) { er.read(ctx, wanted[node], ev) }) {
			er.recordReading(node, ev, false)
			return time.Time{} // the claim has ended
		}
	}
	return due
}

// knownNodes returns the Nodes whose BMCs were read.
func (er *evidenceReader) knownNodes() map[string]bool {
	er.mu.Lock()
	defer er.mu.Unlock()
	known := map[string]bool{}
	for node := range er.byNode {
		known[node] = true
	}
	return known
}

// dropAllBut drops the readings for which no check waits any longer.
func (er *evidenceReader) dropAllBut(wanted map[string]remediate.Run, now time.Time) {
	var applied []string
	er.mu.Lock()
	for node, ev := range er.byNode {
		if _, still := wanted[node]; still {
			continue
		}
		if ev.applied {
			applied = append(applied, node)
		}
		delete(er.byNode, node)
	}
	er.mu.Unlock()
	for _, node := range applied {
		er.opt.Model.Objects.SetReadsOff(now, node, false)
		er.wake()
	}
}

// choose returns the Nodes whose BMCs are read now. The one that has waited longest comes
// first, so that the order of names favours none. due is when to choose again.
func (er *evidenceReader) choose(wanted map[string]remediate.Run, now time.Time) (nodes []string, due time.Time) {
	er.mu.Lock()
	defer er.mu.Unlock()
	busy := 0
	nextRead := map[string]time.Time{}
	for node, ev := range er.byNode {
		nextRead[node] = ev.next
		if ev.running {
			busy++
		}
		if ev.applied { // updateBook must withdraw it when it is too old
			due = times.Sooner(due, ev.at.Add(evidenceMaxAge+time.Millisecond))
		}
	}
	byNextRead := slices.SortedFunc(maps.Keys(wanted), func(a, b string) int {
		return cmp.Or(nextRead[a].Compare(nextRead[b]), strings.Compare(a, b))
	})
	for _, node := range byNextRead {
		ev := er.byNode[node]
		switch {
		case ev != nil && ev.running:
		case ev != nil && now.Before(ev.next):
			due = times.Sooner(due, ev.next)
		case busy == evidenceParallel:
			return nodes, times.Sooner(due, now.Add(evidenceSearchEvery))
		default:
			busy++
			nodes = append(nodes, node)
		}
	}
	return nodes, due
}

// markRunning records that the BMC of a Node is being read.
func (er *evidenceReader) markRunning(node string) *evidence {
	er.mu.Lock()
	defer er.mu.Unlock()
	ev := er.byNode[node]
	if ev == nil {
		ev = &evidence{}
		er.byNode[node] = ev
	}
	ev.running = true
	return ev
}

// read reads one BMC, and requests a decision.
func (er *evidenceReader) read(ctx context.Context, draft remediate.Run, ev *evidence) {
	er.recordReading(draft.Target.Node, ev, er.readsOff(ctx, draft))
	er.wake()
}

// recordReading stores the result of a visit, unless ev was dropped meanwhile.
func (er *evidenceReader) recordReading(node string, ev *evidence, off bool) {
	now := time.Now()
	er.mu.Lock()
	defer er.mu.Unlock()
	if er.byNode[node] != ev {
		return
	}
	ev.running, ev.off, ev.at, ev.next = false, off, now, now.Add(evidenceEvery)
}

// readsOff says whether two spaced readings of the identified BMC are Off. A run needs the
// same proof after its command. // I1, I8
func (er *evidenceReader) readsOff(ctx context.Context, draft remediate.Run) bool {
	ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	h, err := er.opt.Hosts.FindNew(ctx, draft.Target)
	if err != nil || !power.IsStrict(h.Levels[0]) { // only a BMC of strict assurance shortens a wait
		return false
	}
	s, err := power.Open(er.opt.Open, h, 0, er.opt.Timing)
	if err != nil {
		return false
	}
	defer s.Close(ctx)
	for ctx.Err() == nil {
		r, err := s.Read(ctx)
		switch {
		case err != nil, r.State != bmc.Off, er.opt.Hosts.Identify(ctx, h, 0, r, draft.Target, false) != guard.IdentityMatches:
			return false
		case s.Proof.Proven(time.Now()):
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(s.Proof.NextRead(time.Now()))):
		}
	}
	return false
}
