package remediate

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// flat is a Run without its journal and pointers, so that == compares it.
type flat struct {
	target                               Target
	step, abandonTo                      Step
	reason, note, abandon, newUID, lease string
	renew, renewSeen                     time.Time
	leaseBoot                            string
	leaseAlone                           bool
	attempt, level, offLevel, journal    int
	proof                                ProofKind
	stepStarted, ended, isolated         time.Time
	apiLost, onSeen, notBefore, healthy  time.Time
	busy                                 time.Time
	started, manual                      time.Time
	intent                               Intent
	last                                 Visit
	touched, foundOff, leaveOff          bool
	wrongClock                           bool
	offLease, unfence, offOnly           bool
	contradicted                         int
	contradiction                        Contradiction // the last
	abort, asIs, retry, confirmed        bool
	recheck, hasWord                     bool
	word                                 OffConfirmation
	maxAttempts, tries, labels, restored int
	reprovision, noMore                  bool
	hasWait, switchedOff                 bool
	otherPowerLock                       string
	wait                                 Wait
	isolatedAsked                        bool
	names                                NodeNames
}

// flatten must know every field that Next may change; TestFlattenKnowsTheRun
// fails when one is added.
func flatten(r Run) flat {
	f := flat{
		target: r.Target, step: r.Step, abandonTo: r.AbandonTo, reason: string(r.Reason), note: r.Note, abandon: string(r.Abandon),
		newUID: r.NewNodeUID, attempt: r.Attempt, level: r.Level, offLevel: r.OffLevel, proof: r.Proof, journal: len(r.Steps), stepStarted: r.StepStarted, ended: r.Ended,
		isolated: r.Isolated, apiLost: r.APILost, onSeen: r.OnSeen, notBefore: r.NotBefore, healthy: r.HealthySince, busy: r.BusySince,
		started: r.Started, intent: r.Intent, wrongClock: r.WrongClock, touched: r.Intervened, foundOff: r.FoundOff, leaveOff: r.LeaveOff,
		offLease: r.OffLease != nil, unfence: r.Unfence != nil, offOnly: r.OffOnly,
	}
	f.abort, f.asIs, f.retry = r.Abort != nil, r.Abort != nil && r.Abort.AsIs, r.Retry != nil
	f.confirmed, f.recheck = r.Confirmed != nil, r.Revalidate
	f.maxAttempts, f.reprovision, f.noMore = r.Limits.MaxAttempts, r.Limits.Reprovision, r.NoMoreAttempts
	f.isolatedAsked, f.otherPowerLock, f.names = r.IsolatedAsked, r.OtherPowerLock, r.NodeNames
	f.tries, f.labels, f.switchedOff, f.restored = len(r.Tries), len(r.NodeLabels), r.SwitchedOff, len(r.Restored)
	if f.hasWait = r.Wait != nil; f.hasWait {
		f.wait = *r.Wait
	}
	if f.hasWord = r.Confirmation != nil; f.hasWord {
		f.word = *r.Confirmation
	}
	if r.Manual != nil {
		f.manual = r.Manual.At
	}
	if r.OffLease != nil {
		f.lease, f.renew, f.renewSeen = r.OffLease.ResourceVersion, r.OffLease.RenewTime, r.OffLease.Seen
		f.leaseBoot, f.leaseAlone = r.OffLease.BootID, r.OffLease.Unregistered
	}
	if f.contradicted = len(r.Contradicted); f.contradicted > 0 {
		f.contradiction = r.Contradicted[f.contradicted-1]
	}
	if n := len(r.Steps); n > 0 {
		f.last = r.Steps[n-1]
	}
	return f
}

func TestFlattenKnowsTheRun(t *testing.T) {
	require.Equal(t, 57, reflect.TypeFor[Run]().NumField(),
		"Run has another number of fields: teach flatten and keyOf the new one, then change this number")
}

// key is a state with its times relative to now, cut where nothing depends on
// them any more, so that the search is finite.
type key struct {
	step, abandonTo         Step
	action                  Action
	reason, abandon         string
	nodeUID, bootID, newUID string
	attempt, left           int8
	flags                   uint64
	ages                    [20]int16
	wait                    waitKey
	bits                    [8]int8
	backup, offLease        int8
	level, offLevel         int8
	contradiction           int8 // of the second level; there are no more
	supply                  supply
	people                  people
	more                    int8 // attempts that are left
	word, wordLease         int8
	session                 int8 // its level
	ahead                   int16
	wrongFor                int8
	other                   fencerKey
	owner                   owner
	worn                    worn
	created                 int8 // the Node, after the first Off read
}

func keyOf(v variant, st state) key {
	r, w := st.rec, st.w
	k := key{
		step: r.Step, abandonTo: r.AbandonTo, action: r.Intent.Action, reason: string(r.Reason), abandon: string(r.Abandon),
		level: int8(r.Level), offLevel: int8(r.OffLevel), supply: w.supply, people: w.people, session: w.memory.level, ahead: int16(w.ahead), wrongFor: w.wrongFor, other: v.otherKey(st), more: int8(r.Limits.MaxAttempts - r.Attempt), owner: w.owner, worn: w.worn,
		nodeUID: r.Target.NodeUID, bootID: r.Target.BootID, newUID: r.NewNodeUID, attempt: int8(r.Attempt), left: st.left,
	}
	for i, b := range []bool{
		r.Intervened, r.FoundOff, r.LeaveOff, r.Unfence != nil, r.OffOnly,
		w.on, w.hung, w.ready, w.oos, w.labels, w.hold, w.requested, w.machineGone, w.paused, w.ordered,
		w.accepted.OffAccepted(), w.ack, w.sincePower, w.lied, w.byUs, st.crash, w.marked, w.noQuorum,
		r.Revalidate, r.Confirmed != nil, hasNewConfirmation(r), r.Proof == ProofHuman, r.Limits.Reprovision,
		r.Abort != nil, r.Abort != nil && r.Abort.AsIs, r.Retry != nil, r.WrongClock, v.clocked() && w.compared, w.set && (w.ahead != 0 || !w.compared),
		w.released, w.withdrawn, restoredOn(r, w.uid), r.IsolatedAsked, w.otherLock, r.OtherPowerLock != "",
	} {
		if b {
			k.flags |= 1 << i
		}
	}
	for _, c := range r.Contradicted {
		if k.contradiction = 1; c.OnPending {
			k.contradiction = 2
		}
	}
	if r.Step.Ended() {
		return k // nothing follows
	}
	k.wait = waitKeyOf(v, r, w.now+w.ahead)
	k.bits = [8]int8{w.boots, w.uid, w.bootID, w.lastUID, w.isolatedBoot, w.isolatedUID, int8(w.badBoots), int8(w.lieFor)}
	if w.first >= 0 && w.created > w.first {
		k.created = int8(min(w.created-w.first, 1+int(clockRounding/time.Second)))
	}
	if w.backupUID != 0 {
		k.backup = 1
		if uid(w.backupUID) == r.Target.NodeUID {
			k.backup = 3
		}
		if w.backupUID == w.uid && w.backupRV == w.rv {
			k.backup = 2
		}
	}
	shown := w.now + w.ahead // by the clock that the record is read by
	k.ages = [20]int16{
		age(r.StepStarted, shown, 70+v.moreLease()), age(r.Intent.At, shown, 61), age(r.Isolated, shown, 40), age(r.APILost, shown, 70),
		age(r.OnSeen, shown, 70), age(r.NotBefore, shown, 70), age(r.HealthySince, shown, 301),
		noted(w.first, w.now, 30+v.moreLease()), noted(w.last, w.now, 30), noted(w.isolatedAt, w.now, 30), cut(w.deleting), cut(w.apiDown), 0, 0, 0, 0, 0, 0, 0, 0,
	}
	if r.Step == PowerOn { // its time may begin with the pods'
		k.ages[2] = age(r.Isolated, shown, 55)
	}
	if !r.BusySince.IsZero() {
		limit := 1 + int(busyAtMost/time.Second)
		k.ages[0], k.ages[19] = age(r.StepStarted, shown, 70+limit), age(r.BusySince, shown, limit)
	}
	if confirmationActive(r) {
		k.word, k.ages[0], k.ages[17] = 1, age(r.StepStarted, shown, 80), age(r.Confirmation.Since, shown, 16)
		if r.Confirmation.Lease.ResourceVersion == versions[w.leaseRV] {
			k.wordLease = 1
		}
	}
	if r.Step.Idle() && r.OffLevel > 0 { // it walks through the levels
		k.ages[0] = age(r.StepStarted, shown, 301)
	}
	for _, c := range r.Contradicted {
		k.ages[16] = age(c.Since, shown, int(contradictedFor/time.Second))
	}
	if v.bmh && !w.on {
		k.ages[12] = int16(min(w.offFor, bmoDelay))
	}
	switch {
	case !w.on || w.hung:
		k.ages[13] = -int16(min(w.downFor, lostAfter))
	case w.upFor < bootDelay+readyDelay+1:
		k.ages[13] = int16(w.upFor)
	default:
		k.ages[13] = int16(10 + (w.upFor-bootDelay)%v.renewEvery())
	}
	switch {
	case r.OffLease == nil:
		k.ages[14] = int16(min(w.now-w.renewed, 80+v.moreLease()))
	case r.OffLease.ResourceVersion == versions[w.leaseRV]:
		k.ages[18] = age(r.OffLease.Seen, shown, 16+v.moreLease())
		k.offLease, k.ages[14] = offLeaseKey(r, w), age(r.OffLease.RenewTime, shown, 80+v.moreLease())
	default:
		k.offLease = offLeaseKey(r, w)
	}
	if v.runTimeout != 0 && !r.Step.Idle() {
		k.ages[15] = age(r.Started, shown, int(v.runTimeout/time.Second)+1)
	}
	return k
}

// age is how long ago t was, at most limit; a time to come is negative.
func age(t time.Time, now, limit int) int16 {
	if t.IsZero() {
		return -9999
	}
	return int16(min(now-int(t.Unix()-epoch.Unix()), limit))
}

// moreLease is by how many seconds a Lease longer than usual is followed for longer.
func (v variant) moreLease() int { return v.duration() - 40 }

func noted(at, now, limit int) int16 {
	if at < 0 {
		return -1
	}
	return int16(min(now-at, limit))
}

func cut(n int) int16 {
	if n >= never {
		return 9999
	}
	return int16(n)
}
