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
)

const (
	evidenceEvery  = 15 * time.Second // between two looks at one BMC
	evidenceMaxAge = 30 * time.Second // older readings prove nothing
	evidenceAtOnce = 8                // BMCs that are looked at together
	evidenceTime   = 20 * time.Second // one look, both readings
	evidencePause  = time.Second      // between two searches for targets
)

// evidence is what the BMC of one Node said, while a check waits that would act
// at once on a host that is off.
type evidence struct {
	running bool
	off     bool      // read twice
	counts  bool      // the ledger has been told that it reads Off
	at      time.Time // of the newest reading
	next    time.Time // not asked again before
}

// evidenceReader asks the BMCs of hosts that a check waits for. Its deciding goroutine
// alone tells the Book what they said, so that nothing older is told after something newer.
type evidenceReader struct {
	opt  Options
	wake func()

	mu     sync.Mutex
	byNode map[string]*evidence
	woken  time.Time // the end of the last suspend after which all was read
	sought time.Time // when targets were last searched for; for the deciding goroutine
}

func newEvidenceReader(opt Options, wake func()) *evidenceReader {
	return &evidenceReader{opt: opt, wake: wake, byNode: map[string]*evidence{}}
}

// tell brings the ledger up to date with what the BMCs said. What was read before a
// suspend of this host, or has become old, counts no more.
func (er *evidenceReader) tell(now time.Time) {
	_, woken := er.opt.View.gaps()
	changed := map[string]bool{}
	er.mu.Lock()
	suspended := woken.After(er.woken)
	er.woken = woken
	for node, ev := range er.byNode {
		off := ev.off && !suspended && now.Sub(ev.at) <= evidenceMaxAge
		if off != ev.counts {
			ev.counts, changed[node] = off, off
		}
	}
	if suspended {
		clear(er.byNode)
	}
	er.mu.Unlock()
	for node, off := range changed {
		er.opt.Book.setReadsOff(now, node, off)
	}
}

// seek asks the BMCs of the targets that a check waits for, if the check would not wait
// for a host that reads Off. It says when to seek again. act is whether this instance may
// act on the cluster.
func (er *evidenceReader) seek(act bool, now time.Time) (due time.Time) {
	if again := er.sought.Add(evidencePause); now.Before(again) {
		return again
	}
	var wanted map[string]remediate.Run
	if act {
		var some bool
		if wanted, some = er.opt.Book.waiting(er.known()); some {
			er.sought = now
		}
	}
	er.dropAllBut(wanted, now)
	nodes, due := er.choose(wanted, now)
	for _, node := range nodes {
		ev := er.begin(node)
		if !er.opt.Lead.Spawn(func(ctx context.Context) { er.read(ctx, wanted[node], ev) }) {
			er.note(node, ev, false, false)
			return time.Time{} // the claim ended meanwhile
		}
	}
	return due
}

// known are the Nodes whose BMCs were asked.
func (er *evidenceReader) known() map[string]bool {
	er.mu.Lock()
	defer er.mu.Unlock()
	known := map[string]bool{}
	for node := range er.byNode {
		known[node] = true
	}
	return known
}

// dropAllBut forgets what nobody waits for any more.
func (er *evidenceReader) dropAllBut(wanted map[string]remediate.Run, now time.Time) {
	var counted []string
	er.mu.Lock()
	for node, ev := range er.byNode {
		if _, still := wanted[node]; still {
			continue
		}
		if ev.counts {
			counted = append(counted, node)
		}
		delete(er.byNode, node)
	}
	er.mu.Unlock()
	for _, node := range counted {
		er.opt.Book.setReadsOff(now, node, false)
		er.wake()
	}
}

// choose names the Nodes whose BMCs are asked now, who waits longest first, so that no
// name is always served before another. due is when to choose again.
func (er *evidenceReader) choose(wanted map[string]remediate.Run, now time.Time) (nodes []string, due time.Time) {
	er.mu.Lock()
	defer er.mu.Unlock()
	busy := 0
	turn := map[string]time.Time{}
	for node, ev := range er.byNode {
		turn[node] = ev.next
		if ev.running {
			busy++
		}
		if ev.counts { // it is to be told when that is too old
			due = earliest(due, ev.at.Add(evidenceMaxAge+time.Millisecond))
		}
	}
	byTurn := slices.SortedFunc(maps.Keys(wanted), func(a, b string) int {
		return cmp.Or(turn[a].Compare(turn[b]), strings.Compare(a, b))
	})
	for _, node := range byTurn {
		ev := er.byNode[node]
		switch {
		case ev != nil && ev.running:
		case ev != nil && now.Before(ev.next):
			due = earliest(due, ev.next)
		case busy == evidenceAtOnce:
			return nodes, earliest(due, now.Add(evidencePause))
		default:
			busy++
			nodes = append(nodes, node)
		}
	}
	return nodes, due
}

// begin notes that the BMC of a Node is being read.
func (er *evidenceReader) begin(node string) *evidence {
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

// read looks at one BMC, and asks for a decision on what it said.
func (er *evidenceReader) read(ctx context.Context, draft remediate.Run, ev *evidence) {
	off, locks := er.readsOff(ctx, draft)
	er.note(draft.Target.Node, ev, off, locks)
	er.wake()
}

// note keeps what a look has found, unless nobody waited for that any more. locks: asking
// again soon would lock the account.
func (er *evidenceReader) note(node string, ev *evidence, off, locks bool) {
	now := time.Now()
	er.mu.Lock()
	defer er.mu.Unlock()
	if er.byNode[node] != ev {
		return
	}
	ev.running, ev.off, ev.at, ev.next = false, off, now, now.Add(evidenceEvery)
	if locks {
		ev.next = now.Add(power.AccountPause)
	}
}

// readsOff says whether two spaced readings of the identified BMC say Off, the
// same proof that a run needs after its command. // I1, I8
func (er *evidenceReader) readsOff(ctx context.Context, draft remediate.Run) (off, locks bool) {
	ctx, cancel := context.WithTimeout(ctx, evidenceTime)
	defer cancel()
	h, err := er.opt.Hosts.FindNew(ctx, draft.Target)
	if err != nil || !power.IsStrict(h.Levels[0]) { // what others say shortens no wait
		return false, false
	}
	s, err := power.Open(er.opt.Open, h, 0, er.opt.Timing)
	if err != nil {
		return false, false
	}
	defer s.Close(ctx)
	for ctx.Err() == nil {
		r, err := s.Read(ctx)
		switch {
		case err != nil:
			return false, bmc.KindOf(err).RefusesAccount()
		case r.State != bmc.Off, er.opt.Hosts.Identify(ctx, h, 0, r, draft.Target, false) != guard.IdentityMatches:
			return false, false
		case s.Proof().Proven(time.Now()):
			return true, false
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(s.Proof().NextRead(time.Now()))):
		}
	}
	return false, false
}
