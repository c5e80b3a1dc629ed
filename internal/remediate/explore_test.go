package remediate

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	crashes = []fault{crashBeforeSave, crashAfterSave, crashAfterAct}
	engine  = []fault{crashBeforeSave, crashAfterSave, crashAfterAct, saveFails, saveAnswerLost, actFails, answerLost}
	power   = []fault{lostPower, newSession, lie, foreignOn, foreignOff, reregister, deaf}
	cluster = []fault{lostAPI, slowLook, conflict, replaced}
)

func join(lists ...[]fault) (out []fault) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// variants are the searches: each a world, and what may go wrong in it.
var variants = []variant{
	{name: "delete, everything three times", states: 215_900, faults: join(engine, power, cluster), budget: 3, want: "Done"},
	{name: "taint", states: 15_000, isolation: IsolateTaint, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "Metal3", states: 7_900, bmh: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "sick, not dead", states: 42_600, sick: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "a long lie", states: 20_400, lieFor: 100, faults: join(crashes, power), budget: 2, want: "Done"},
	{name: "a long lie about a sick host", states: 44_900, sick: true, lieFor: 100, faults: join(crashes, power), budget: 2, want: "Done"},
	{name: "a long Lease of a sick host", states: 10_500, sick: true, lease: 120, lieFor: 200, faults: join(crashes, []fault{lie, deaf, foreignOn, lostAPI}), budget: 1, want: "Done"},
	{name: "a lie about a sick host with a long Lease", states: 8_300, sick: true, ignoresOff: true, lease: 120, lieFor: 200, faults: []fault{lie}, budget: 1, want: "Held PowerOffFailed"},
	{name: "a lie about a sick host, and the API away", states: 91_800, sick: true, ignoresOff: true, lieFor: 100, faults: []fault{lie, outageShort, outageLong, lostAPI, crashAfterSave}, budget: 2, want: "Held PowerOffFailed"},
	{name: "Nodes from Git", states: 108_000, faults: join(crashes, []fault{recreated, reregister, lostAPI, foreignOn, lie, actFails}), budget: 3, want: "Done"},
	{name: "Nodes from Git, second attempt", states: 26_100, badBoots: 1, maxAttempts: 2, faults: join(crashes, []fault{recreated, lie, foreignOn, slowBoot}), budget: 2, want: "Done"},
	{name: "pods stay", states: 11_800, podsStay: true, faults: join(engine, power), budget: 2, want: "Done"},
	{name: "found off", states: 13_800, foundOff: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "found off, stays off", states: 8_800, foundOff: true, stayOff: true, faults: join(engine, power, []fault{unfenceOrder}), budget: 2, want: "Held FoundOff"},
	{name: "off only", states: 9_300, offOnly: true, faults: join(engine, power, []fault{unfenceOrder}), budget: 2, want: "Held OperatorOff"},
	{name: "API away", states: 91_900, faults: join(crashes, []fault{outageShort, outageLong, outageEver, answerLost, foreignOn}), budget: 2, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "API away, taint, Metal3", states: 69_900, isolation: IsolateTaint, bmh: true, faults: join(crashes, []fault{outageShort, outageLong, outageEver, answerLost}), budget: 2, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "API forbids", states: 4_000, forbidden: true, faults: join(crashes, []fault{lostPower, foreignOff}), budget: 2, want: "Aborted APIForbidden"},
	{name: "API forbids, Metal3", states: 12_200, forbidden: true, bmh: true, faults: crashes, budget: 2, want: "Held PowerOnFailed"},
	{name: "people", states: 23_100, faults: join(crashes, []fault{pause, resume, unfenceOrder, lostAPI, answerLost}), budget: 3, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "people, taint, Metal3", states: 3_400, isolation: IsolateTaint, bmh: true, faults: join(crashes, []fault{pause, resume, unfenceOrder, answerLost}), budget: 2, runTimeout: 4 * time.Minute, want: "Done"},
	{name: "second attempt", states: 2_600, badBoots: 1, maxAttempts: 2, faults: join(engine, power, cluster, []fault{unfenceOrder}), budget: 1, want: "Done"},
	{name: "second attempt, taint", states: 2_200, isolation: IsolateTaint, badBoots: 1, maxAttempts: 2, faults: join(engine, power, []fault{unfenceOrder}), budget: 1, want: "Done"},
	{name: "attempts used up", states: 8_700, badBoots: 9, maxAttempts: 2, faults: join(engine, power, []fault{pause, unfenceOrder}), budget: 1, runTimeout: 5 * time.Minute, want: "Reprovisioned AttemptsExhausted"},
	{name: "attempts used up, no fallback", states: 22_200, badBoots: 9, noReplace: true, faults: join(engine, power), budget: 2, want: "Held AttemptsExhausted"},
	{name: "never off", states: 23_400, ignoresOff: true, faults: join(engine, power, cluster), budget: 2, want: "Held PowerOffFailed"},
	{name: "never off, Metal3 off", states: 4_400, ignoresOff: true, bmh: true, faults: join(engine, power), budget: 2, want: "Done"},
	{name: "never on", states: 13_500, ignoresOn: true, faults: join(engine, []fault{lostPower, foreignOn}), budget: 2, want: "Reprovisioned PowerOnFailed"},
	{name: "never on, no fallback", states: 21_200, ignoresOn: true, noReplace: true, faults: join(engine, power), budget: 2, want: "Held PowerOnFailed"},
	{name: "finalizer", states: 13_100, finalizer: 5, faults: join(engine, power), budget: 2, want: "Done"},
	{name: "finalizer for ever", states: 109_000, finalizer: -1, faults: join(crashes, []fault{lie, foreignOn, outageLong}), budget: 2, runTimeout: 4 * time.Minute, want: "Held NodeFinalizer"},
	{name: "delete the Machine", states: 1_600, deleteOnly: true, faults: join(engine, cluster, []fault{pause, outageLong, outageEver, unfenceOrder}), budget: 3, want: "Reprovisioned"},
	{name: "mark the Machine", states: 1_600, deleteOnly: true, marks: true, faults: join(engine, cluster, []fault{pause, outageLong, outageEver, unfenceOrder}), budget: 3, want: "Reprovisioned"},
	{name: "mark a control plane's Machine", states: 90, deleteOnly: true, marks: true, control: true, mayReplace: true, faults: join(engine, cluster, []fault{pause, memberLost, memberBack}), budget: 2, want: "Reprovisioned"},
	{name: "control plane", states: 10_000, isolation: IsolateTaint, control: true, faults: join(engine, power, cluster, []fault{memberLost, memberBack}), budget: 2, want: "Done"},
	{name: "delete a control plane's Machine", states: 10, deleteOnly: true, control: true, faults: join(engine, cluster), budget: 2, want: "Aborted ControlPlane"},
	{name: "attempts used up, marked", states: 8_000, marks: true, badBoots: 9, maxAttempts: 2, faults: join(engine, power, []fault{pause, unfenceOrder}), budget: 1, runTimeout: 5 * time.Minute, want: "Reprovisioned AttemptsExhausted"},
	{name: "attempts used up, control plane", states: 2_000, control: true, mayReplace: true, badBoots: 9, maxAttempts: 2, faults: join(engine, power, []fault{memberLost, memberBack}), budget: 1, want: "Held AttemptsExhausted"},
	{name: "delete the Machine, no owner", states: 9, deleteOnly: true, noReplace: true, faults: engine, budget: 2, want: "Aborted NoController"},
}

// TestExplore searches everything that the faults of each variant can do to a
// run, and checks the invariants on every transition.
func TestExplore(t *testing.T) {
	var mu sync.Mutex
	states, began := 0, time.Now()
	t.Run("variant", func(t *testing.T) {
		for _, v := range slices.Concat(variants, twoLevels, ordersGiven, twoFencers, slowBoots, confirmationLies, clocksSet, waits, crowds, nodelessWorlds, releases, withdrawals, droppedRequests, otherMachines, otherRequests, owners, leftOffWorlds) {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				n := search(t, v)
				mu.Lock()
				defer mu.Unlock()
				states += n
			})
		}
	})
	took := time.Since(began)
	t.Logf("in all %d states in %v: %.0f states/s", states, took.Round(time.Millisecond), float64(states)/took.Seconds())
}

// search explores one variant and gives the number of its states.
func search(t *testing.T, v variant) int {
	t.Helper()
	if os.Getenv("FENCED_SEARCH") == "wide" { // make sim: one fault more in every world
		v.budget, v.wide = v.budget+1, true
		// With so many faults a host comes on, and its run ends, before a kubelet changes the
		// resourceVersion: that alone does not keep a late isolation away, its claim does.
		v.endsWithClaim = true
	}
	x := explore(v, Next)
	t.Logf("%d states, %d questions", len(x.nodes), x.asked)
	require.Empty(t, strings.Join(x.found, "\n"))
	assert.GreaterOrEqual(t, len(x.nodes), v.states, "the search has shrunk")
	assert.Equal(t, v.want, x.nodes[0].settled, "the end without faults")
	return len(x.nodes)
}

// nodelessWorlds are the searches of Machines without a Node.
var nodelessWorlds = []variant{
	{name: "no Node", states: 10_600, nodeless: true, faults: join(engine, power, cluster), budget: 2, want: "Done"},
	{name: "no Node, Metal3", nodeless: true, bmh: true, faults: join(crashes, power), budget: 2, want: "Done"},
	{name: "no Node, never joins", nodeless: true, badBoots: 9, faults: join(engine, power), budget: 1, want: "Reprovisioned AttemptsExhausted"},
	{name: "no Node, never joins, no fallback", nodeless: true, badBoots: 9, noReplace: true, faults: join(engine, power), budget: 1, want: "Held AttemptsExhausted"},
	{name: "waits: no Node", retry: 200 * time.Millisecond, nodeless: true, badBoots: 3, noReplace: true, faults: join(crashes, []fault{slowBoot, unfenceOrder}), budget: 1, want: "Done"},
}

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
	require.Equal(t, 58, reflect.TypeFor[Run]().NumField(),
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
	owner                   owner
	worn                    worn
	created                 int8 // the Node, after the first Off read
}

func keyOf(v *variant, st *state) key {
	r, w := &st.rec, &st.w
	k := key{
		step: r.Step, abandonTo: r.AbandonTo, action: r.Intent.Action, reason: string(r.Reason), abandon: string(r.Abandon),
		level: int8(r.Level), offLevel: int8(r.OffLevel), supply: w.supply, people: w.people, session: w.memory.level, ahead: int16(w.ahead), wrongFor: w.wrongFor, more: int8(r.Limits.MaxAttempts - r.Attempt), owner: w.owner, worn: w.worn,
		nodeUID: r.Target.NodeUID, bootID: r.Target.BootID, newUID: r.NewNodeUID, attempt: int8(r.Attempt), left: st.left,
	}
	for i, b := range []bool{
		r.Intervened, r.FoundOff, r.LeaveOff, r.Unfence != nil, r.OffOnly,
		w.on, w.hung, w.ready, w.oos, w.labels, w.hold, w.requested, w.machineGone, w.paused, w.ordered,
		w.accepted.OffAccepted(), w.ack, w.sincePower, w.lied, w.byUs, st.crash, w.marked, w.noQuorum,
		r.Revalidate, r.Confirmed != nil, hasNewConfirmation(*r), r.Proof == ProofHuman, r.Limits.Reprovision,
		r.Abort != nil, r.Abort != nil && r.Abort.AsIs, r.Retry != nil, r.WrongClock, v.clocked() && w.compared, w.set && (w.ahead != 0 || !w.compared),
		w.released, w.withdrawn, restoredOn(*r, w.uid), r.IsolatedAsked, w.otherLock, r.OtherPowerLock != "",
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
	if confirmationActive(*r) {
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
		k.offLease, k.ages[14] = offLeaseKey(*r, w), age(r.OffLease.RenewTime, shown, 80+v.moreLease())
	default:
		k.offLease = offLeaseKey(*r, w)
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
func (v *variant) moreLease() int { return v.duration() - 40 }

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
