package remediate

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// Two fencers share one store. One of them, the owner, is the process of the search:
// state.rec is the shared record, and world.memory what the owner remembers. The other
// was the owner, was stopped somewhere, and may go on later with what it remembers.

// careless are broken forms of what keeps two fencers apart; they are not Next's part.
type careless struct {
	noCAS          bool // a save of one that is not the owner any more succeeds
	noWait         bool // the next owner does not wait for the end of the one before, nor do its commands end
	looseHold      bool // a hold is set at any time
	endsWithClaim  bool // no rule broken: an isolation ends with the claim, too
	noPrecondition bool // a late deletion asks neither for UID nor for resourceVersion
}

// takeOver is how long it takes from a stop until another owns the cluster: the time
// for which a claim stands. What was begun under it comes, if late, within settling.
const (
	takeOver = 5
	settling = 15
)

// fencer is one that was stopped, and does not know that it is the owner no more.
type fencer struct {
	rec    Run // as it has it
	mem    memory
	next   Run // what it was about to save, or had saved ...
	action Action
	at     int // ... and when it was stopped before doing that
	saved  bool
	// What its action is bound to.
	backupUID int8
	backupRV  uint8
}

// handOver stops the owner between answer and act, and lets another take over: it has
// the record as saved and an empty memory.
func (v *variant) handOver(st *state, r Run, a Action, f fault) {
	st.other = &fencer{rec: st.rec, next: r, action: a, at: st.w.now, saved: f == stopAfterSave,
		mem: st.w.memory, backupUID: st.w.backupUID, backupRV: st.w.backupRV}
	if f == stopAfterSave {
		st.rec, st.other.rec = r, r
		st.w.contradicted = st.w.contradicted || st.w.told
		st.w.answered(r, Nothing)
	}
	st.w.forget()
	if !v.noWait {
		for range takeOver {
			st.w.tick(v)
		}
	}
}

// mayWake says whether a stopped fencer can go on, or its last action come late.
func (v *variant) mayWake(st *state, f fault) bool {
	switch {
	case f.stop():
		return st.other == nil
	case f == staleRound:
		return st.other != nil
	case f == late:
		return st.other != nil && st.other.action != Nothing && (st.other.bound() && !(v.endsWithClaim && st.other.action == IsolateNode) || v.noWait || v.looseHold && st.other.action == SetPowerLock || st.w.now-st.other.at < settling)
	}
	return true
}

// bound says whether an action can come at any time, because it asks for what it was
// decided on: the UID and the resourceVersion.
func (f *fencer) bound() bool {
	return f.action == IsolateNode || f.action == BackupNode || f.action == RestoreTargetNode || f.action == ClearRequest
}

// wake lets a stopped fencer go on, before the owner's look.
func (x *explorer) wake(st *state, f fault) []string {
	switch f {
	case late:
		return x.comesLate(st)
	case staleRound:
		return x.goesOn(st)
	}
	return nil
}

// comesLate is the last action of a stopped fencer. One that was not saved is not done.
func (x *explorer) comesLate(st *state) []string {
	o := *st.other
	st.other = nil
	if !o.saved {
		if !x.v.noCAS {
			return nil
		}
		st.rec = o.next
	}
	return x.v.acts(&st.w, o, o.next, o.action)
}

// acts does an action of a fencer that is not the owner.
func (v *variant) acts(w *world, o fencer, r Run, a Action) (bad []string) {
	switch a {
	case SendOff, SendOn:
		mine := w.memory
		if w.memory = o.mem; w.answers(v, w.memory.level) == "" {
			w.command(v, a == SendOn)
		}
		w.memory = mine
	case IsolateNode:
		bad = w.isolatedLate(v, o, r)
	case BackupNode: // a write to the store, which compares the epoch
	case RestoreTargetNode:
		if w.uid != 0 && uid(w.uid) == r.NewNodeUID {
			w.act(v, r, a, false)
		}
	default:
		w.act(v, r, a, false)
	}
	return bad
}

// isolatedLate is an isolation that was decided on by one that is not the owner any
// more. Whether it was proven off to that one, onIsolate has asked when it decided.
func (w *world) isolatedLate(v *variant, o fencer, r Run) (bad []string) {
	if w.apiDown > 0 || w.uid == 0 {
		return nil
	}
	node, lives := w.uid, w.kubeletRuns() && !w.lied && !w.leftOff
	backupUID, backupRV := w.backupUID, w.backupRV
	if w.backupUID, w.backupRV = o.backupUID, o.backupRV; v.noPrecondition {
		r.Target.NodeUID, w.backupUID, w.backupRV = uid(w.uid), w.uid, w.rv
	}
	before := w.isolatedAt
	w.isolate(v, r)
	w.backupUID, w.backupRV = backupUID, backupRV
	done := w.isolatedAt != before || w.deleting > 0
	switch {
	case done && uid(node) != o.next.Target.NodeUID:
		bad = append(bad, fmt.Sprintf("I2: %s is isolated late, and %s was decided on", uid(node), o.next.Target.NodeUID))
	case done && lives:
		bad = append(bad, "I1: a Node is isolated late whose kubelet lives")
	}
	return bad
}

// goesOn is a whole round of a stopped fencer: with its memory and its record it looks
// and asks, and its save is refused.
func (x *explorer) goesOn(st *state) []string {
	o := *st.other
	st.other = nil
	mine := st.w.memory
	st.w.memory = o.mem
	s := st.w.look(x.v, o.rec, false, false)
	r, a, _ := x.next(o.rec, s, st.w.time())
	var bad []string
	if x.v.noCAS {
		bad = x.v.onAnswer(&st.w, o.rec, r, s, a, st.w.time())
		st.rec = r
		o.mem, o.backupUID, o.backupRV = st.w.memory, st.w.backupUID, st.w.backupRV
	}
	st.w.memory = mine
	if !x.v.noCAS {
		return nil
	}
	o.next = r
	return append(bad, x.v.acts(&st.w, o, r, a)...)
}

// afterEnd judges what may still come when the run has ended: nobody looks any more.
func (x *explorer) afterEnd(st state) (bad []string) {
	for range settling {
		if st.other == nil || st.left <= 0 || !x.v.mayWake(&st, late) {
			return bad
		}
		after := st
		bad = append(bad, x.comesLate(&after)...)
		w := &after.w
		for range bootDelay {
			w.tick(x.v)
		}
		switch {
		case after.rec.Step != st.rec.Step: // it is open again
		case w.hold && !st.w.hold:
			return append(bad, "I20: the hold is set after the run has ended")
		case st.w.on && !w.on && w.byUs:
			return append(bad, "I20: the host is switched off after its run has ended")
		case w.uid != st.w.uid && st.w.uid != 0, w.oos && !st.w.oos:
			return append(bad, "I2: the Node is isolated after the run has ended")
		}
		st.w.tick(x.v)
	}
	return bad
}

// fencerKey is what of a stopped fencer the future depends on.
type fencerKey struct {
	action       Action
	age, level   int8
	there, saved bool
	holds        bool
	target       string
	careless     flat // all of it, where its saves succeed
}

func (v *variant) otherKey(st *state) (k fencerKey) {
	o := st.other
	if o == nil {
		return k
	}
	k = fencerKey{action: o.action, there: true, saved: o.saved, level: o.mem.level}
	switch {
	case o.action == IsolateNode:
		k.holds = o.backupUID == st.w.uid && o.backupRV == st.w.rv
		k.target = o.next.Target.NodeUID
		if v.endsWithClaim {
			k.age = int8(min(st.w.now-o.at, settling))
		}
	case !o.bound():
		k.age = int8(min(st.w.now-o.at, settling))
	case o.action == RestoreTargetNode:
		k.target = o.next.NewNodeUID
	}
	if v.noCAS {
		k.careless = flatten(o.next)
	}
	return k
}

var stops = []fault{stopBeforeSave, stopAfterSave, late, staleRound}

// twoFencers are the searches of two that share a store.
var twoFencers = []variant{
	{name: "fencers: delete", states: 185_000, faults: join(stops, []fault{lostPower, foreignOn, crashAfterSave, pause}), budget: 3, want: "Done"},
	{name: "fencers: taint, Metal3", states: 15_000, isolation: IsolateTaint, bmh: true, faults: join(stops, []fault{lostAPI, pause, resume}), budget: 3, want: "Done"},
	{name: "fencers: sick", states: 36_000, sick: true, faults: join(stops, []fault{lie, pause}), budget: 3, want: "Done"},
	{name: "fencers: people", states: 12_600, faults: join(stops, people5, []fault{unfenceOrder}), budget: 3, want: "Done"},
	{name: "fencers: found off, second attempt", states: 19_000, foundOff: true, badBoots: 1, maxAttempts: 2, faults: join(stops, []fault{outageShort}), budget: 2, want: "Done"},
	{name: "fencers: outlets", states: 32_000, levelled: levelled{levels: 2, afterMains: bmc.Off}, ignoresOff: true, faults: join(stops, []fault{pause, lostPower}), budget: 2, runTimeout: 5 * time.Minute, want: "Done"},
	{name: "fencers: never off", states: 11_000, ignoresOff: true, faults: join(stops, []fault{foreignOff, retryOrder, abortOrder}), budget: 2, want: "Held PowerOffFailed"},
	{name: "fencers: on a confirmation", states: 13_000, confirmedAtStart: true, levelled: levelled{bmc: dead}, faults: join(stops, []fault{foreignOn, unfenceOrder}), budget: 2, want: "Held ConfirmedOff"},
	{name: "fencers: never boots", states: 28_000, careless: careless{endsWithClaim: true}, badBoots: 9, noReplace: true, faults: join(stops, []fault{pause, foreignOn}), budget: 3, want: "Held AttemptsExhausted"},
	{name: "fencers: delete the Machine", states: 340, deleteOnly: true, faults: join(stops, []fault{pause, outageLong, conflict}), budget: 3, want: "Reprovisioned"},
}

// apart is a world of two fencers, one rule of theirs broken.
func apart(c careless, v variant, faults ...fault) variant {
	v.name, v.careless, v.faults, v.budget = "m", c, join(stops, faults), 3+len(faults)
	return v
}

// fencerMutants break what keeps two fencers apart, and Next's part in it.
var fencerMutants = []mutant{
	{"saves without comparing", "Aborted Paused: the host is off", apart(careless{noCAS: true}, variant{}, pause), Next},
	{"takes over without waiting", "I20: the host is switched off after", apart(careless{noWait: true}, variant{}), Next},
	{"sets the hold at any time", "I20: the hold is set after", apart(careless{looseHold: true}, variant{bmh: true}), Next},
	{"isolates after the claim has ended", "I2: the Node is isolated after", apart(careless{}, variant{badBoots: 9, noReplace: true}, pause), Next},
	{"deletes by name", "I2: ", apart(careless{noPrecondition: true}, variant{}), Next},
}
