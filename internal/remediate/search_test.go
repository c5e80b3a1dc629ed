package remediate

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// fault is one thing that goes wrong, or one order that arrives, in a round.
type fault uint8

const (
	none fault = iota

	// Before the look.
	lostPower    // the power read gets no answer
	lostAPI      // the reads of the cluster get none
	slowLook     // six seconds pass between the look and the answer
	newSession   // the BMC restarted: another session
	lie          // the BMC says Off for a while, whatever is true
	foreignOn    // someone else switches the host on
	foreignOff   // or off
	reregister   // a living kubelet registers its Node again, without a reboot
	replaced     // someone deletes the Node and makes another of that name
	clockAhead   // the clock of the process is set wrong for a while
	clockBehind  // or back
	recreated    // a controller makes a Node that is gone again, as it stands in Git
	outageShort  // the API is gone for 5 s
	outageLong   // for longer than its limit
	outageEver   // for ever
	pause        // a person stops everything
	resume       // and starts it again
	unfenceOrder // a person wants the host back
	memberLost   // another etcd member is lost
	memberBack   // and comes back
	holdOrder    // a person holds the target
	releaseOrder // and releases it
	abortOrder   // a person gives the run up
	closeOrder   // or ends it, with the host left as it is
	retryOrder   // a person has mended something
	confirmOrder // a person confirms that the host is off
	late         // what a fencer was stopped before comes, after another has taken over
	staleRound   // such a fencer goes on with what it remembers
	withdraw     // the request or check of the run is gone or paused, or the mode forbids the run
	dropRequest  // the request is deleted; only that
	askAgain     // and is there again
	slowBoot     // a kubelet that did not come up after a power cycle does after all
	nameTaken    // another machine registers under the name of the Node
	disksMoved   // or gets the disks of the host, and its Node
	takenOff     // the owner of a label takes it off the Node
	otherRequest // another remediator requests that Metal3 keeps the host off
	otherDone    // and is done

	// Between answer and act.
	saveFails       // the record is not saved
	saveAnswerLost  // it is, but the engine believes it is not
	crashBeforeSave // the process dies
	crashAfterSave
	crashAfterAct
	actFails       // the write is not done
	answerLost     // it is, but nobody hears of it
	deaf           // the BMC accepts the command and does nothing
	conflict       // the Node changes just before the write
	stopBeforeSave // the fencer is stopped, not ended, and another takes over
	stopAfterSave
)

var faultNames = [...]string{"-", "lostPower", "lostAPI", "slowLook", "newSession", "lie", "foreignOn", "foreignOff", "reregister", "replaced", "clockAhead", "clockBehind", "recreated",
	"outageShort", "outageLong", "outageEver", "pause", "resume", "unfence", "memberLost", "memberBack", "hold", "release", "abort", "close", "retry", "confirm", "late", "stale", "withdraw", "dropRequest", "askAgain", "slowBoot", "nameTaken", "disksMoved", "takenOff", "otherRequest", "otherDone", "saveFails", "saveAnswerLost",
	"crashBeforeSave", "crashAfterSave", "crashAfterAct", "actFails", "answerLost", "deaf", "conflict", "stopBeforeSave", "stopAfterSave"}

func (f fault) early() bool { return f < saveFails }

func (f fault) crash() bool { return f >= crashBeforeSave && f <= crashAfterAct }

func (f fault) stop() bool { return f == stopBeforeSave || f == stopAfterSave }

// errLost is the answer to a command that nobody heard.
var errLost = errors.New("lost")

// state is one point of the search: the record as saved, the world with the
// process's memory, and how many faults may still come.
type state struct {
	rec   Run
	w     world
	left  int8
	crash bool    // every fault so far was a crash
	other *fencer // one that was stopped
}

// nextFunc is Next, or a broken form of it.
type nextFunc func(Run, Observation, time.Time) (Run, Action, time.Duration)

// node is what the search remembers of a state it has left behind.
type node struct {
	parent   int32
	fine     int32 // the state after a round without a fault; -1 = none
	seconds  int16 // what that round takes
	pre      fault
	post     fault
	crash    bool
	end      Step
	reason   string
	excused  bool // stays open on purpose while the API is gone
	mayRest  bool // waits on purpose: the cause lasts, or a person stopped fenced
	settled  string
	rest     string // what is wrong if the run stays here for ever
	distance int
}

// explorer is one breadth-first search.
type explorer struct {
	v     *variant
	next  nextFunc
	seed  maphash.Seed
	seen  map[uint64]int32 // by hash: one in 10^9 that two of a million states share one
	nodes []node
	found []string // violations, with how they came about
	asked int
}

// stopAfter is how many violations are enough to know.
const stopAfter = 3

// explore visits every state that the variant's faults can reach and returns
// the search with what it found.
func explore(v variant, next nextFunc) *explorer {
	x := &explorer{v: &v, next: next, seed: maphash.MakeSeed(), seen: map[uint64]int32{}}
	var more []state
	front := []state{{rec: v.run(), w: v.world(), left: int8(v.budget), crash: true}}
	x.seen[x.hash(&front[0])] = 0
	x.nodes = append(x.nodes, node{parent: -1, fine: -1, end: front[0].rec.Step, crash: true})
	for at := int32(0); len(front) > 0 && len(x.found) < stopAfter; {
		more = more[:0]
		for i := range front {
			if !front[i].rec.Step.Ended() {
				more = x.rounds(&front[i], at, more)
			}
			at++
		}
		front, more = more, front // a state takes two kilobytes
	}
	if len(x.found) < stopAfter {
		x.settle()
	}
	return x
}

// rounds takes one state through one round, once per combination of faults.
func (x *explorer) rounds(from *state, at int32, more []state) []state {
	st := *from
	for _, pre := range x.choices(&st, true) {
		if len(x.found) >= stopAfter {
			return more
		}
		mid := st
		x.check(at, pre, x.wake(&mid, pre)...)
		w := &mid.w
		r := w.admitAgain(x.v.strike(w, mid.rec, pre))
		s := w.look(x.v, r, pre == lostPower, pre == lostAPI)
		if pre == slowLook {
			ahead := w.ahead
			for range 6 {
				w.tick(x.v)
			}
			s.At = s.At.Add(time.Duration(w.ahead-ahead) * time.Second) // monotonic
		}
		now := w.time()
		r2, changed, a, wait := x.ask(r, s, now, at, pre)
		x.check(at, pre, x.v.onAnswer(w, r, r2, s, a, now)...)
		mid.rec = r
		if pre != none {
			mid.left--
			mid.crash = false
		}
		for _, post := range x.choices(&mid, false) {
			if !applies(post, changed, a) {
				continue
			}
			to := mid
			x.finish(&to, r2, a, post)
			sec := max(1, int((wait+time.Second-1)/time.Second))
			for range sec {
				to.w.tick(x.v)
			}
			more = x.add(at, &to, pre, post, sec, more)
		}
	}
	return more
}

// ask puts the question twice, and checks that Next is pure. It also says whether the record has changed.
func (x *explorer) ask(r Run, s Observation, now time.Time, at int32, pre fault) (_ Run, changed bool, _ Action, _ time.Duration) {
	x.asked++
	before := flatten(r)
	steps := slices.Clone(r.Steps[:max(0, len(r.Steps)-1)]) // the last is in before
	r2, a, wait := x.next(r, s, now)
	r3, b, wait3 := x.next(r, s, now)
	after := flatten(r2)
	if after != flatten(r3) || a != b || wait != wait3 {
		x.check(at, pre, "asked twice, Next answered differently")
	}
	if flatten(r) != before || !slices.Equal(r.Steps[:len(steps)], steps) {
		x.check(at, pre, "Next changed the record it was given")
	}
	changed = after != before
	if n := len(r2.Steps); n > 1 { // the journal has no say; keep the search small
		r2.Steps = r2.Steps[n-1:]
	}
	return r2, changed, a, wait
}

// choices are the faults that may come now.
func (x *explorer) choices(st *state, early bool) []fault {
	out := []fault{none}
	if st.left <= 0 {
		return out
	}
	for _, f := range x.v.faults {
		switch {
		case f.early() != early,
			f == foreignOn && st.w.on, f == foreignOff && !st.w.on,
			f == lie && (!st.w.on || st.w.lieFor > 0),
			f == pause && st.w.paused, f == resume && !st.w.paused,
			f == reregister && (st.w.uid != 0 || !st.w.kubeletRuns()),
			f == replaced && (st.w.uid == 0 || st.w.deleting > 0), f == recreated && st.w.uid != 0,
			(f == clockAhead || f == clockBehind) && st.w.ahead != 0,
			f == unfenceOrder && st.w.ordered,
			f == slowBoot && !st.w.stuckInBoot(),
			(f == nameTaken || f == disksMoved) && st.w.other, f == disksMoved && (st.w.uid == 0 || st.w.deleting > 0),
			f == takenOff && (st.rec.Step != RestoreNode || st.w.uid == 0 || !st.w.labels),
			!st.w.mayOrder(&st.rec, f), !x.v.mayWake(st, f),
			f == otherRequest && st.w.otherLock, f == otherDone && !st.w.otherLock,
			f == memberLost && st.w.noQuorum, f == memberBack && !st.w.noQuorum,
			f >= outageShort && f <= outageEver && st.w.apiDown > 0:
			continue
		}
		out = append(out, f)
	}
	return out
}

// strike lets an early fault happen.
func (v *variant) strike(w *world, r Run, f fault) Run {
	switch f {
	case newSession:
		w.session++
		w.first, w.last, w.ack = -1, -1, false // fenced learns it from the next reading
		w.late[0] = 0                          // a command that was not carried out yet is forgotten
	case lie:
		w.lieFor = cmp.Or(v.lieFor, 5)
	case foreignOn, foreignOff:
		if f == foreignOn && !v.feedsAnother {
			w.feed(v, false)
		}
		w.power(f == foreignOn)
	case reregister:
		w.register()
	case nameTaken, disksMoved:
		w.takeName(f == disksMoved)
	case takenOff:
		w.labels, w.worn.took = false, true
	case slowBoot:
		w.bootsAfterAll()
	case replaced:
		w.newNode()
		w.copied = true
	case clockAhead, clockBehind:
		w.setClock(map[fault]int{clockAhead: wrong, clockBehind: -wrong}[f])
	case recreated:
		w.newNode()
		w.labels = false
	case outageShort:
		w.apiDown = 5
	case outageLong:
		w.apiDown = 20
	case outageEver:
		w.apiDown = never
	case pause, resume:
		w.paused = f == pause
	case memberLost, memberBack:
		w.noQuorum = f == memberLost
	case otherRequest, otherDone:
		w.otherLock = f == otherRequest
	case unfenceOrder:
		w.ordered, w.leftOff, w.wanted = true, false, true
		r.Unfence = &Order{Actor: "a", Reason: "b"} // the engine adds it to the saved record
	default:
		r = v.order(w, r, f)
	}
	return r
}

// applies says whether a late fault makes a difference after this answer.
func applies(f fault, changed bool, a Action) bool {
	switch f {
	case none, crashBeforeSave, stopBeforeSave:
		return true
	case saveFails, saveAnswerLost, crashAfterSave, stopAfterSave:
		return changed
	case deaf:
		return a == SendOff || a == SendOn
	case conflict:
		return a == IsolateNode || a == BackupNode
	}
	return a != Nothing
}

// finish saves and acts as the engine does, with one fault at most.
func (x *explorer) finish(st *state, r Run, a Action, f fault) {
	if f != none {
		st.left--
		st.crash = st.crash && f.crash() && x.v.clocksDiffer == 0 // else it is more than a crash
	}
	if f.stop() {
		x.v.handOver(st, r, a, f)
		return
	}
	if f == saveFails || f == crashBeforeSave {
		if f == crashBeforeSave {
			st.w.forget()
			st.w.restartElsewhere(x.v)
		}
		return // nothing is done when the save failed
	}
	st.rec = r
	st.w.set = false
	st.w.contradicted = st.w.contradicted || st.w.told
	st.w.answered(r, a)
	if f == conflict {
		st.w.rv++
	}
	switch f {
	case saveAnswerLost, actFails:
	case crashAfterSave:
		st.w.forget()
		st.w.restartElsewhere(x.v)
	default:
		st.w.act(x.v, r, a, f == deaf)
	}
	switch {
	case f == actFails && (a == SendOff || a == SendOn), f == answerLost && a == SendOff:
		st.w.resetProof()
		st.w.accepted, st.w.ack = st.w.accepted.AddCommand(bmc.CommandOff, errLost), false
	case f == answerLost && a == RestoreTargetNode:
		st.w.worn.answer = false
	case f == crashAfterAct:
		st.w.forget()
		st.w.restartElsewhere(x.v)
	}
}

// hash tells states apart. The key of a fencer that was stopped is long, and most states have none.
func (x *explorer) hash(st *state) uint64 {
	k := maphash.Comparable(x.seed, keyOf(x.v, st))
	if st.other == nil {
		return k
	}
	return maphash.Comparable(x.seed, struct {
		of    uint64
		other fencerKey
	}{k, x.v.otherKey(st)})
}

// add takes in the state after a round.
func (x *explorer) add(from int32, st *state, pre, post fault, sec int, more []state) []state {
	k := x.hash(st)
	id, known := x.seen[k]
	if !known {
		id = int32(len(x.nodes))
		x.seen[k] = id
		x.nodes = append(x.nodes, node{
			parent: from, fine: -1, pre: pre, post: post, crash: st.crash, end: st.rec.Step, reason: string(st.rec.Reason),
			excused: st.rec.Abandon != "" && st.w.apiDown >= never && st.w.on,
			mayRest: st.rec.Step == Waiting && (st.rec.Wait.CauseSeen && !st.rec.Wait.Due || st.w.paused || st.w.held || st.w.otherLock),
		})
		more = append(more, *st)
		if st.rec.Step.Ended() {
			x.check(id, none, x.v.onEnd(st)...)
			x.check(id, none, x.afterEnd(*st)...)
		}
		x.nodes[id].rest = x.v.onRest(st)
		x.check(id, none, x.v.onHeld(st)...)
	}
	if pre == none && post == none {
		x.nodes[from].fine, x.nodes[from].seconds = id, int16(sec)
	}
	return more
}

// check records violations with the faults that led there.
func (x *explorer) check(at int32, pre fault, broken ...string) {
	for _, b := range broken {
		x.found = append(x.found, fmt.Sprintf("%s: %s\n%s", x.v.name, b, x.path(at, pre)))
	}
}

// path tells how a state was reached: one line per run of equal rounds.
func (x *explorer) path(at int32, pre fault) string {
	var lines []string
	for i := at; i >= 0; i = x.nodes[i].parent {
		n := x.nodes[i]
		lines = append(lines, fmt.Sprintf("    %-11s %s", n.end, strings.Trim(faultNames[n.pre]+" "+faultNames[n.post], "- ")))
	}
	slices.Reverse(lines)
	lines = slices.Compact(lines)
	if pre != none {
		lines = append(lines, "    then "+faultNames[pre])
	}
	return strings.Join(lines, "\n")
}
