package remediate

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// variant is one configuration of the search: what the world is like and what
// may go wrong in it. Its zero value is a hung host whose Node is deleted.
type variant struct {
	name   string
	faults []fault // what may go wrong, each at any round
	budget int     // how many of them in one path
	// wide: one fault more than was tuned for. The steps' times are scaled down
	// to seconds here, so that many crashes may spend one: the end is then another
	// safe one, and only that is not compared.
	wide   bool
	states int    // the search must visit so many
	want   string // the end without faults: "Done", "Held PowerOffFailed"

	levelled
	careless

	confirmedAtStart bool // a manual confirmation begins the run
	mistaken         bool // whoever confirms is wrong: they have not switched the host off

	clocksDiffer int // seconds by which the clock is ahead where a killed or stopped process goes on

	isolation   Isolation
	bmh         bool // Metal3 also owns the power
	foundOff    bool
	stayOff     bool // powerOnFoundOff: false
	offOnly     bool
	deleteOnly  bool // the DeleteMachine strategy
	noUUID      bool // no machine tells its system UUID
	nodeless    bool // no Node was ever there, or nobody knows which
	marks       bool // the Machine is handed over by condition, not deleted
	requested   bool // a request asks for the run
	forgets     bool // ... of a check that deletes it when the Node is gone
	control     bool // it carries a control-plane member
	mayReplace  bool // ... which may be replaced
	sick        bool // the kubelet lives and renews the Lease
	noReplace   bool // step 6 is not allowed
	badBoots    int  // how many power cycles do not bring the kubelet back
	ignoresOff  bool
	ignoresOn   bool
	podsStay    bool
	releases    bool // its pods are deleted at once
	lieFor      int  // seconds that one lie lasts, 0: 5
	lease       int  // seconds of the Node's Lease, 0: 40
	finalizer   int  // seconds that a finalizer keeps the Node, -1 for ever
	forbidden   bool
	runTimeout  time.Duration // 0: out of the picture
	retry       time.Duration // the first pause of a Waiting run; 0: it is Held
	maxAttempts int
}

const never = 1 << 20 // seconds

func (v *variant) run() Run {
	l := Limits{
		OffDeadline: 60 * time.Second, APITimeout: 12 * time.Second, PodsGoneTimeout: 8 * time.Second,
		OnDeadline: 45 * time.Second, ReadyTimeout: 25 * time.Second, RestoreTimeout: 8 * time.Second,
		RunTimeout: never * time.Second, MinPowerInterval: 10 * time.Second, MaxAttempts: 1,
		PowerOnFoundOff: !v.stayOff, ReleasePods: v.releases, Reprovision: !v.noReplace, Levels: v.levels, RetryInterval: v.retry,
	}
	if v.runTimeout != 0 {
		l.RunTimeout = v.runTimeout
	}
	if v.maxAttempts != 0 {
		l.MaxAttempts = v.maxAttempts
	}
	r := Run{
		ID: "r", Isolation: IsolateDelete, Strategy: PowerCycle, Limits: l, OffOnly: v.offOnly,
		Target: Target{Node: "n", NodeUID: uid(1), BootID: boot(1), SystemUUID: "s", Machine: "m", MachineUID: "mu", Host: "h"},
	}
	if v.nodeless {
		r.Target.NodeUID, r.Target.BootID, r.Target.SystemUUID, r.Target.ReportedUUID, r.Target.ByHardware = "", "", "", "s", true
	}
	if v.noUUID {
		r.Target.SystemUUID = ""
	}
	if v.isolation != "" {
		r.Isolation = v.isolation
	}
	if v.bmh {
		r.Target.BareMetalHost = "ns/h"
	}
	if v.deleteOnly {
		r.Strategy, r.Target.Host = DeleteMachine, ""
	}
	if v.requested || v.forgets {
		r.Request = &Request{Kind: "FencedRemediation", Name: "n", UID: "ru"}
	}
	r.ControlPlane, r.Limits.ReplaceControlPlane = v.control, v.mayReplace
	if v.confirmedAtStart {
		r.Confirmed = &Order{Actor: "a", Reason: "b", At: clock(0)}
	}
	return Begin(r, clock(0))
}

var epoch = time.Unix(1_800_000_000, 0).UTC()

func clock(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }

// Names are cut from constants, so that a look allocates nothing.
const digits = "u0u1u2u3u4u5u6u7u8u9b0b1b2b3b4b5b6b7b8b9"

func uid(n int8) string { return digits[2*n : 2*n+2] }

func boot(n int8) string {
	if n == 0 { // nobody has booted
		return ""
	}
	return digits[20+2*n : 20+2*n+2]
}

var versions = func() (s [256]string) {
	for i := range s {
		s[i] = string([]byte{'v', byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10)})
	}
	return s
}()

// world is the truth: the host, its BMC, the cluster, and the memory of the
// process, which a crash loses. It is a plain value.
type world struct {
	now int // seconds

	on, hung bool // hung: the host is on, its kubelet does not run
	offFor   int
	upFor    int // since the power came on, the kubelet's clock
	downFor  int // since the kubelet stopped
	boots    int8
	lieFor   int // the BMC says Off for so long
	badBoots int

	uid, bootID, lastUID      int8 // of the Node; uid 0 = there is none
	rv, leaseRV               uint8
	renewed                   int
	ready, oos, labels        bool
	deleting                  int  // 0 = no, else seconds until it is gone
	isolatedAt                int  // truth of I7; -1 = not yet
	created                   int  // when the Node was made
	released                  bool // pods and VolumeAttachments were deleted since
	isolatedBoot, isolatedUID int8
	hold, requested           bool
	machineGone, marked       bool
	backupUID                 int8
	backupRV                  uint8
	apiDown                   int
	paused, ordered           bool // ordered: the one unfence was given
	noQuorum                  bool // etcd would not survive the loss of the host
	otherLock                 bool // somebody else requests that Metal3 keeps the host off

	supply
	people
	clocks
	owner
	worn worn

	memory

	// The oracle's own notes, made from the truth and never shown to Next.
	sincePower bool // the truth changed behind the last read
	lied       bool
	byUs       bool // the host is off because we switched it off
}

const (
	bootDelay  = 3 // power to registration
	readyDelay = 2 // registration to Ready
	lostAfter  = 4 // kubelet stopped to Ready=Unknown
	podsAfter  = 6
	bmoDelay   = 3 // Metal3 sees that a host it wants on is off
)

// duration is that of the Lease, and renewEvery when its kubelet renews it, in seconds.
func (v *variant) duration() int { return cmp.Or(v.lease, 40) }

func (v *variant) renewEvery() int { return v.duration() / 4 }

func (v *variant) world() world {
	w := world{
		on: !v.foundOff, hung: !v.sick, boots: 1, upFor: 1000, downFor: 100, badBoots: v.badBoots,
		uid: 1, bootID: 1, lastUID: 1, labels: true, isolatedAt: -1, created: -1000, renewed: -100, requested: true,
	}
	if v.sick {
		w.renewed, w.downFor = 0, 0
	}
	if v.deleteOnly {
		w.requested = false
	}
	if v.nodeless {
		w.uid, w.bootID, w.lastUID, w.labels = 0, 0, 0, false
	}
	if w.feedsAnother = v.feedsAnother; v.bmc == booting {
		w.boot = 20
	}
	if v.confirmedAtStart {
		w.personConfirms(v)
	}
	w.forget()
	return w
}

func (w *world) power(on bool) {
	if w.on == on || on && !w.mains() {
		return
	}
	w.on, w.sincePower, w.byUs = on, true, false
	w.offFor, w.upFor = 0, 0
	if on {
		w.hung = w.badBoots > 0
		w.badBoots = max(0, w.badBoots-1)
	} else {
		w.downFor = 0
	}
}

// look is what the engine does before it asks.
func (w *world) look(v *variant, r Run, lostPower, lostAPI bool) Observation {
	answers := !lostAPI && w.apiDown == 0
	s := Observation{At: w.time(), Paused: w.paused || w.held, Clock: w.agrees(answers), ClockSet: w.set}
	if s.Clock == No && !s.Paused { // as the engine has it
		s.Paused, s.PausedReason, s.PausedWhy = true, "ClockSkew", "the clock is wrong"
	}
	defer func() { w.shown(s) }()
	if !v.deleteOnly {
		w.open(v, r)
		s.Level, s.OffAccepted = int(w.memory.level), w.accepted.OffAccepted()
		s.Power, s.PowerError = w.readPower(v, lostPower)
		s.Proof, s.LowerLevelOn = w.proofNow(), w.alsoOn(v, r, lostPower)
		if s.PowerError == "" {
			s.Identity = Yes
		}
	}
	if w.backupUID != 0 {
		s.Backup = Backup{UID: uid(w.backupUID), ResourceVersion: versions[w.backupRV]}
	}
	if !answers {
		return s
	}
	s.API = APIReachable
	if v.forbidden && r.Step != PowerOff {
		s.API = APIForbidden
	}
	s.Justified, s.Contested = AnswerOf((w.uid == 0 || !w.ready) && !w.withdrawn && !w.dropped), No
	if v.control {
		s.Quorum = AnswerOf(!w.noQuorum)
	}
	if w.otherLock {
		s.Contested, s.Contender, s.OtherPowerLock = Yes, "another remediator", "reboot.metal3.io/another"
	}
	s.PowerLock, s.PodsGone, s.PodsReleased, s.VolumesReleased = AnswerOf(w.hold), AnswerOf(w.podsGone(v)), AnswerOf(w.podsGone(v)), AnswerOf(w.released)
	s.Lease = Lease{Known: true, ResourceVersion: versions[w.leaseRV], RenewTime: clock(w.renewed),
		Duration: time.Duration(v.duration()) * time.Second}
	s.Machine = Machine{Exists: AnswerOf(!w.machineGone), UID: "mu", Requested: w.requested, Marked: w.marked, Replaceable: AnswerOf(!v.noReplace)}
	s.Node.Exists = AnswerOf(w.uid != 0)
	if w.uid != 0 {
		s.Node = Node{Exists: Yes, UID: uid(w.uid), ResourceVersion: versions[w.rv], BootID: boot(w.bootID),
			SystemUUID: w.systemUUID(v), Created: clock(w.created), Deleting: w.deleting > 0, Ready: AnswerOf(w.ready), OutOfService: w.oos}
		w.lookAtLabels(r, &s)
	}
	s.Withdrawn = w.asksNoMore(r, s.Node)
	return s
}

func (w *world) podsGone(v *variant) bool {
	return w.released || !v.podsStay && w.isolatedAt >= 0 && w.now-w.isolatedAt >= podsAfter
}

// act does one action to the world; deaf is a BMC that accepts and does nothing.
func (w *world) act(v *variant, r Run, a Action, deaf bool) {
	switch a {
	case SendOff, SendOn:
		w.resetProof()
		command, err := commands[a], error(nil)
		if kind := w.answers(v, w.memory.level); kind != "" {
			err = &bmc.Error{Kind: kind}
		}
		w.accepted = w.accepted.AddCommand(command, err)
		w.ack = w.accepted.OffAccepted()
		if err == nil && !deaf {
			w.command(v, a == SendOn)
		}
		return
	}
	if w.apiDown > 0 || v.forbidden && r.Step != PowerOff {
		return
	}
	switch a {
	case SetPowerLock:
		w.hold = true
	case ReleasePowerLock:
		w.hold = false
	case BackupNode:
		w.backupUID, w.backupRV = w.uid, w.rv
	case IsolateNode:
		w.isolate(v, r)
	case ReleasePods:
		w.released = w.isolatedAt >= 0
	case RestoreTargetNode:
		if w.uid != 0 {
			w.putLabels(r)
			w.oos = false
			w.rv++
		}
	case ClearRequest:
		w.requested = false
	case DeleteTargetMachine:
		w.machineGone, w.marked = !v.marks, v.marks
	}
}

func (w *world) isolate(v *variant, r Run) {
	if w.uid == 0 || uid(w.uid) != r.Target.NodeUID || w.uid != w.backupUID || w.rv != w.backupRV || w.deleting > 0 {
		return // the preconditions of the write do not hold
	}
	w.rv++
	w.isolatedBoot, w.isolatedUID, w.leftOff = w.bootID, w.uid, w.confirmation && !w.against && !w.aborted && !w.ordered
	switch {
	case r.Isolation == IsolateTaint:
		w.oos, w.isolatedAt = true, w.now
	case v.finalizer != 0:
		w.deleting = v.finalizer
		if v.finalizer < 0 {
			w.deleting = never
		}
	default:
		w.removeNode()
	}
}

func (w *world) removeNode() {
	w.uid, w.bootID, w.ready, w.oos, w.deleting, w.isolatedAt, w.owner = 0, 0, false, false, 0, w.now, owner{}
}

// tick lets one second pass.
func (w *world) tick(v *variant) {
	w.now++
	w.lieFor, w.apiDown = max(0, w.lieFor-1), countdown(w.apiDown)
	w.people.tick()
	w.clocks.tick()
	w.lateness(v)
	if w.mains() {
		w.boot = max(0, w.boot-1)
	}
	if w.deleting = countdown(w.deleting); w.deleting == 1 {
		w.removeNode()
	}
	if v.forgets && w.uid == 0 && w.isolatedAt >= 0 {
		w.drop()
	}
	if v.bmh {
		w.metal3(v)
	}
	if w.on {
		w.upFor++
	} else {
		w.offFor++
	}
	if w.other {
		w.tickOther(v)
	}
	if !w.on || w.hung {
		w.downFor++
		if w.ready && !w.other && w.downFor >= lostAfter {
			w.ready = false
			w.rv++
		}
		return
	}
	w.kubelet(v)
}

func countdown(n int) int {
	if n >= never {
		return n
	}
	return max(0, n-1)
}

// metal3 keeps the host off while a hold stands, ours or another's, and on while none does.
func (w *world) metal3(v *variant) {
	held := w.hold || w.otherLock
	switch {
	case w.answers(v, 0) != "" || v.levels > 1 && v.ignoresOff && held:
	case held && w.on:
		w.power(false)
		w.byUs = w.hold
	case !held && !w.on && w.offFor >= bmoDelay:
		w.power(true)
	}
}

// kubelet registers once per boot, then renews its Lease.
func (w *world) kubelet(v *variant) {
	w.downFor = 0
	switch {
	case w.upFor == bootDelay && w.deleting == 0:
		w.boots++
		w.register()
	case w.upFor == bootDelay+readyDelay && w.uid != 0 && w.deleting == 0 && (!v.sick || w.boots > 1):
		w.ready = true
		w.rv++
	}
	if w.upFor >= bootDelay && (w.upFor-bootDelay)%v.renewEvery() == 0 {
		w.leaseRV++
		w.renewed, w.moved = w.now, w.based
	}
}

func (w *world) kubeletRuns() bool { return w.on && !w.hung && w.upFor > bootDelay }

func (w *world) newNode() {
	w.lastUID++
	w.uid, w.created, w.worn = w.lastUID, w.now, worn{}
	w.rv++
}

// register makes the Node, or renews it, under the boot that runs.
func (w *world) register() {
	if w.uid == 0 {
		w.newNode()
		w.labels = false
	}
	w.bootID, w.isolatedAt, w.released, w.owner = w.boots, -1, false, owner{copied: w.copied}
	w.rv++
}

// memory is that of a process; a crash loses it.
type memory struct {
	accepted bmc.Acceptance
	session  uint64
	proof    bmc.Proof
	level    int8 // of the session

	// The oracle's notes about it.
	ack         bool // Off was acknowledged in this process, by a BMC that did not restart since ...
	first, last int  // ... and then read Off at, without anything else between; -1
}

func (w *world) forget() {
	w.accepted, w.ack = bmc.Acceptance{}, false
	w.resetProof()
	w.session++
	w.compared, w.set = false, true
	w.worn.answer = false
}

func (w *world) resetProof() {
	w.proof = bmc.Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second}
	w.first, w.last = -1, -1
}

var commands = map[Action]bmc.Command{SendOff: bmc.CommandOff, SendOn: bmc.CommandOn}

// readPower is one answer of the BMC, and the oracle's note of it.
func (w *world) readPower(v *variant, lost bool) (bmc.Reading, bmc.Kind) {
	r := bmc.Reading{At: clock(w.now), Session: w.session}
	kind := w.answers(v, w.memory.level)
	if lost {
		kind = bmc.KindUnreachable
	}
	w.told = false
	if lost = kind != ""; !lost {
		r = w.reads(v, w.memory.level)
		w.lied = w.lied || w.on && r.State == bmc.Off
	}
	w.proof = w.proof.Add(r)
	if v.trusts {
		r.Session = 0
	}
	if !lost {
		w.accepted = w.accepted.AddReading(r)
	}
	switch {
	case r.State != bmc.Off:
		w.first, w.last = -1, -1
	case w.first < 0:
		w.first, w.last = w.now, w.now
	default:
		w.last = w.now
	}
	if !lost {
		w.sincePower = false
	}
	return r, kind
}
