package remediate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// A run that waits before the isolation is over when what it was decided on is gone: it would never go on,
// and whoever has the name now could not be fenced. // L1, I27
func TestWaitingRunIsOverWhenItsTargetIsReplaced(t *testing.T) {
	for name, set := range map[string]func(r *Run, s *Observation){
		"no Machine":            func(_ *Run, s *Observation) { s.Machine, s.Node = Machine{Exists: No}, Node{Exists: No} },
		"another machine":       func(_ *Run, s *Observation) { s.Node.UID, s.Node.BootID, s.Node.SystemUUID = "u7", "b7", "x" },
		"another BareMetalHost": func(r *Run, s *Observation) { r.Target.BareMetalHostUID, s.BareMetalHostUID = "h1", "h2" },
	} {
		r, s := begin(Held, minute)
		restingAtOn(&r, &s)
		s.Withdrawn = No
		metal3(&r, &s, No)
		set(&r, &s)
		got, action, _ := Next(r, s, noon)
		assert.Equal(t, Aborted, got.Step, name)
		assert.Equal(t, reason.TargetChanged, got.Reason, name)
		assert.Equal(t, Nothing, action, name)

		s.Power.State = bmc.Off // I20
		got, action, _ = Next(r, s, noon)
		assert.Equal(t, Waiting, got.Step, name)
		assert.Equal(t, SendOn, action, name)
	}
}

// The Machine of an isolated host was replaced. Nobody else takes our taint off its Node, and nobody else
// switches its outlet on.
func TestReplacedMachineLeavesNoTaintAndNoOutletOff(t *testing.T) {
	for _, tainted := range []bool{true, false} {
		for _, outlet := range []bool{true, false} {
			r, s := begin(Held, time.Hour)
			taint(&r)
			r.Isolated, r.Reason = ago(time.Hour), reason.PowerOnFailed
			s.Power.State, s.Node.Ready, s.Node.OutOfService, s.Machine.UID = bmc.Off, No, tainted, "mx"
			if outlet {
				r.Limits.Levels, r.Level, r.OffLevel, s.Level = 2, 1, 1, 1
			}
			got, _, _ := Next(r, s, noon)
			assert.Equal(t, tainted || outlet, got.Open(), got.Step)
		}
	}
}

// Another machine has the name of an isolated Node whose own host is On. When nobody asks for the run any more, its
// record says so: whoever waits for fenced may begin, and the host's Node is still taken back. // I22
func TestRestsForNobodyBesideAnotherMachine(t *testing.T) {
	r, s := begin(AwaitNode, minute)
	r.Limits.RetryInterval, s.Node.SystemUUID = minute, "another machine"
	r.Steps = []Visit{{Step: PowerOff}, {Step: DeleteNode}, {Step: PowerOn}, {Step: AwaitNode}}
	r, _, _ = Next(r, s, noon)
	assert.Equal(t, []any{Waiting, reason.TargetChanged, false}, []any{r.Step, r.Reason, r.Settled()})

	withdrawnNow(&r, &s)
	r, action, _ := Next(r, s, noon)
	assert.Equal(t, []any{Waiting, reason.Withdrawn, Nothing, true}, []any{r.Step, r.Reason, action, r.Settled()})
	assert.Contains(t, r.Note, "another machine")

	now := noon.Add(time.Hour)
	s.Node, s.At, s.Power.At = Node{Exists: No}, now, now // its cause has gone, and still nobody asks
	r, action, _ = Next(r, s, now)
	assert.Equal(t, []any{Waiting, Nothing, true}, []any{r.Step, action, r.Settled()})
	s.Node = Node{Exists: Yes, UID: "u3", BootID: "b3", SystemUUID: "s", Ready: Yes}
	r, _, _ = Next(r, s, now)
	assert.Equal(t, RestoreNode, r.Step)
}

// The owner of a host may have deleted its Machine to have it off. The host that fenced has switched off is brought
// back, but not against the owner for ever: the commands become rare. // I20
func TestHostWithoutAMachineIsNotFoughtFor(t *testing.T) {
	for _, gone := range []bool{false, true} {
		r, s := begin(Held, minute)
		restingAtOn(&r, &s)
		s.Withdrawn, s.Power.State = No, bmc.Off
		if gone {
			s.Machine, s.Node = Machine{Exists: No}, Node{Exists: No}
		}
		ons, now := 0, noon
		for now.Before(noon.Add(24 * time.Hour)) {
			s.At, s.Power.At = now, now
			next, a, wait := Next(r, s, now)
			if a == SendOn {
				ons++
			}
			r, now = next, now.Add(max(wait, sec))
		}
		assert.Equal(t, gone, ons < 100, "%d", ons)
		assert.Greater(t, ons, 24)
	}
}

// owner says whose the Node is: another machine may take its name, or get the disks of the host. The
// target's host then does not come up any more, unless a person mends it.
type owner struct {
	other    bool
	livesFor int8 // seconds until the kubelet of the other machine dies
	copied   bool // a person has made the Node again, with all that its kubelet had written
}

const (
	otherBoot = 9  // the boot of the other machine
	otherLife = 15 // seconds that its kubelet lives
)

func (w *world) systemUUID(v *variant) string {
	switch {
	case v.noUUID:
		return ""
	case w.other:
		return "of another machine"
	}
	return "s"
}

// takeName gives the Node to another machine. disks: its kubelet finds the Node that is there.
func (w *world) takeName(disks bool) {
	if !disks {
		w.newNode()
		w.labels, w.oos, w.deleting = false, false, 0
	}
	w.owner, w.bootID, w.ready = owner{other: true, livesFor: otherLife}, otherBoot, true
	w.hung, w.badBoots = true, 3
	w.rv++
}

// tickOther lets the kubelet of the other machine live for a second.
func (w *world) tickOther(v *variant) {
	if w.livesFor--; w.livesFor <= 0 {
		if w.livesFor = 0; w.ready {
			w.ready = false
			w.rv++
		}
		return
	}
	if int(w.livesFor)%v.renewEvery() == 0 {
		w.leaseRV++
		w.renewed = w.now
	}
}

// offLeaseKey is what Next reads from the Lease of the first Off read, for the key of a state.
func offLeaseKey(r Run, w *world) (k int8) {
	for i, b := range []bool{
		r.OffLease.ResourceVersion == versions[w.leaseRV], w.first >= 0 && r.OffLease.Seen.Before(clock(w.first+w.ahead)),
		r.OffLease.BootID == boot(w.bootID), r.OffLease.Unregistered,
	} {
		if b {
			k |= 1 << i
		}
	}
	return k + 1
}

// onOtherMachine judges what an answer does to a Node that belongs to another machine. // I27
func onOtherMachine(w *world, s Observation, a Action) (bad []string) {
	if !w.other || s.API != APIReachable {
		return nil
	}
	switch a {
	case SetPowerLock, SendOff:
		bad = append(bad, fmt.Sprintf("I27: %s, and the Node is another machine's", a))
	case IsolateNode:
		bad = append(bad, "I27: isolated the Node of another machine")
	case DeleteTargetMachine:
		bad = append(bad, "I27: deletes the Machine whose Node is another machine's")
	}
	return bad
}

// onFalseOff judges a false Off: nothing has read Off while the host was on. // I5
func onFalseOff(w *world, r, r2 Run) (bad []string) {
	if r2.Reason == reason.FalseOff && r.Reason != reason.FalseOff && !w.lied && !w.copied {
		bad = append(bad, "I5: a BMC that told the truth is frozen")
	}
	return bad
}

var takers = []fault{nameTaken, disksMoved}

const pauseOfSearch = 200 * time.Millisecond

// otherMachines are the searches in which another machine takes the name.
var otherMachines = []variant{
	{name: "another machine", states: 19_000, faults: join(engine, takers, []fault{lostPower, foreignOn, foreignOff, lostAPI}), budget: 2, want: "Done"},
	{name: "another machine, taint, Metal3", states: 7_300, isolation: IsolateTaint, bmh: true, faults: join(crashes, takers, []fault{answerLost, foreignOn, lostAPI}), budget: 2, want: "Done"},
	{name: "another machine, later attempts", states: 33_000, badBoots: 9, maxAttempts: 3, faults: join(crashes, takers, []fault{slowBoot, lostPower, answerLost}), budget: 2, want: "Reprovisioned AttemptsExhausted"},
	{name: "another machine, waiting", states: 118_000, retry: pauseOfSearch, badBoots: 4, noReplace: true, faults: join(crashes, takers, []fault{slowBoot, foreignOff}), budget: 2, want: "Done"},
	{name: "another machine, never off", states: 16_000, retry: pauseOfSearch, ignoresOff: true, faults: join(crashes, takers), budget: 2, want: triesAgain},
	{name: "another machine, none tells a UUID", states: 27_000, retry: pauseOfSearch, noUUID: true, badBoots: 4, maxAttempts: 3, noReplace: true, faults: join(crashes, []fault{nameTaken, slowBoot, recreated}), budget: 2, want: "Done"},
	{name: "another machine, none tells a UUID, to be replaced", states: 7_000, noUUID: true, badBoots: 9, maxAttempts: 2, faults: join(crashes, []fault{nameTaken, slowBoot, recreated}), budget: 2, want: "Reprovisioned AttemptsExhausted"},
	{name: "another machine, confirmed off", states: 14_000, confirmedAtStart: true, levelled: levelled{bmc: dead}, faults: join(crashes, takers, []fault{lostAPI, unfenceOrder}), budget: 2, want: "Held ConfirmedOff"},
}

var otherMachineMutants = []mutant{
	{"isolates whatever Node has the name", "I27: isolated", variant{name: "m", faults: []fault{disksMoved}, budget: 1}, seeing(sameMachine)},
	{"switches off on what it was told an hour ago", "I27: SendOff", variant{name: "m", ignoresOff: true, faults: []fault{disksMoved}, budget: 1}, seeing(sameMachine)},
	{"takes one UUID of many machines for a name", "I27: isolated", variant{name: "m", noUUID: true, badBoots: 9, noReplace: true, maxAttempts: 2, faults: []fault{nameTaken}, budget: 1}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Attempt > 1 && s.Node.registered() {
			r.Target.NodeUID = s.Node.UID
		}
		return Next(r, s, now)
	}},
	{"takes the name for a sign of life", "I5: a BMC that told the truth", variant{name: "m", faults: []fault{nameTaken}, budget: 1}, saying(func(r Run, s Observation, r2 *Run, a *Action, now time.Time) {
		if r.Step == AwaitNode && isOtherMachine(r.Target, s.Node) {
			*r2, *a, _ = stop(r, reason.FalseOff, "", now)
		}
	})},
	{"rests for ever for another machine", "L1: nobody asks", variant{name: "m", retry: pauseOfSearch, ignoresOff: true, faults: []fault{nameTaken}, budget: 1}, func(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
		if r.Step == Waiting && isOtherMachine(r.Target, s.Node) {
			r.StepStarted = now
		}
		return Next(r, s, now)
	}},
	{"takes an Off of before a restart for its own", "I5: a BMC that told the truth", variant{name: "m", faults: join(crashes, []fault{foreignOn, lostPower}), budget: 3}, seeing(func(r Run, s *Observation, now time.Time) {
		if leaseAdvanced(r, *s) && s.Power.State != bmc.Off {
			s.Power.State, s.Proof = bmc.Off, provenBy(r.OffLease.Seen)
			s.Node.BootID = r.OffLease.BootID
		}
	})},
}

// sameMachine hides that a Node belongs to another machine.
func sameMachine(r Run, s *Observation, _ time.Time) {
	if s.Node.registered() {
		s.Node.SystemUUID = r.Target.SystemUUID
	}
}

// A kubeconfig may never lead to the cluster again in which a run began: somebody pointed it to the wrong one for a
// while. A run that was given up does not stay in step 3 for ever, and a person can close it. // I27, L1
func TestRunOfAClusterThatIsGoneCanBeClosed(t *testing.T) {
	givenUp := func(r *Run) {
		r.Abandon, r.AbandonTo, r.Reason, r.Isolated = reason.Withdrawn, Aborted, reason.Withdrawn, time.Time{}
	}
	for name, change := range map[string]func(*Run){
		"given up":                      givenUp,
		"given up, with our power lock": func(r *Run) { givenUp(r); r.Target.BareMetalHost = "ns/h" },
	} {
		r, s := begin(PowerOn, time.Hour)
		on(&s)
		change(&r)
		r.Limits.RetryInterval, r.Target.ClusterUID, s.ClusterUID = time.Minute, "home", "another"
		r, a, _ := Next(r, s, noon)
		assert.Equal(t, []any{PowerOn, Nothing}, []any{r.Step, a}, name)

		r.Started = ago(r.Limits.RunTimeout + 1)
		r, a, _ = Next(r, s, noon)
		assert.Equal(t, []any{Waiting, reason.APIUnreachable, Nothing}, []any{r.Step, r.Reason, a}, name)

		now := noon.Add(time.Hour)
		s.At, s.Power = now, bmc.Reading{State: bmc.On, At: now}
		r, a, _ = Next(r, s, now) // it still waits for its cluster
		assert.Equal(t, []any{Waiting, Nothing}, []any{r.Step, a}, name)
		r.Abort = &Order{Actor: "uid 0", Reason: "that cluster is gone", At: now, AsIs: true}
		r, a, _ = Next(r, s, now)
		assert.Equal(t, []any{Aborted, reason.ClosedAsIs, Nothing}, []any{r.Step, r.Reason, a}, name)
	}
}

// An API server may never answer again, and its BMCs neither: the site was given up. No run stays in step 3 for ever because of that, and a
// person can close it. When one of them answers, it goes on. // L1
func TestRunOfAnAPIThatIsGoneCanBeClosed(t *testing.T) {
	inTheDark := func(s *Observation) { s.Power, s.PowerError, s.OffAccepted = bmc.Reading{}, bmc.KindUnreachable, false }
	back := func(s *Observation) { on(s); s.PowerError = "" }
	partly := func(s *Observation) { on(s); s.Power.Partial, s.PowerLock = true, CannotTell }
	for name, c := range map[string]struct {
		abandon  reason.Code
		see      func(s *Observation)
		reason   reason.Code
		returns  func(s *Observation)
		finishes Step
	}{
		"given up, and on":          {reason.Withdrawn, on, reason.APIUnreachable, func(s *Observation) { s.API = APIReachable }, Aborted},
		"given up, and may not see": {reason.Withdrawn, func(s *Observation) { on(s); s.API = APIForbidden }, reason.APIForbidden, func(s *Observation) { s.API = APIReachable }, Aborted},
		"given up, in the dark":     {reason.Withdrawn, inTheDark, reason.PowerOnFailed, back, PowerOn},
		"isolated, in the dark":     {"", inTheDark, reason.PowerOnFailed, back, AwaitNode},
		"isolated, one outlet on":   {"", partly, reason.APIUnreachable, func(s *Observation) { s.API, s.PowerLock, s.Power.Partial = APIReachable, No, false }, AwaitNode},
	} {
		r, s := begin(PowerOn, time.Hour)
		r.Limits.RetryInterval, r.Intervened = time.Minute, true
		s.Node.Exists, s.API, s.Identity = CannotTell, APIUnreachable, Yes
		if c.see(&s); s.PowerLock == CannotTell {
			r.Target.BareMetalHost = "ns/h"
		}
		if r.Abandon = c.abandon; c.abandon != "" {
			r.AbandonTo, r.Reason, r.Isolated = Aborted, c.abandon, time.Time{}
		}
		now := noon
		at := func(after time.Duration) Action {
			now = now.Add(after)
			s.At, s.Power.At = now, now
			next, a, _ := Next(r, s, now)
			r = next
			return a
		}
		for range 3 {
			at(time.Minute)
			assert.Equal(t, PowerOn, r.Step, "%s: it may be a short outage", name)
		}
		r.Started = now.Add(-r.Limits.RunTimeout)
		at(r.Limits.OnDeadline + time.Minute)
		assert.Equal(t, []any{Waiting, c.reason}, []any{r.Step, r.Reason}, name)
		at(24 * time.Hour)
		assert.Equal(t, Waiting, r.Step, name)

		for _, bmh := range []string{"", "ns/h"} {
			gone, s := r, s
			gone.Abort = &Order{Actor: "uid 0", Reason: "that site is gone", At: now, AsIs: true}
			if gone.Target.BareMetalHost = bmh; bmh != "" {
				s.PowerLock = CannotTell
			}
			closed, a, _ := Next(gone, s, now)
			assert.Equal(t, []any{Aborted, reason.ClosedAsIs, Nothing}, []any{closed.Step, closed.Reason, a}, "%s %s", name, bmh)
			assert.Equal(t, bmh != "", strings.Contains(closed.Note, "may still carry the power lock"), closed.Note)
			gone.APILost = now.Add(-time.Minute)
			closed, a, _ = Next(gone, s, now)
			assert.Equal(t, []any{bmh == "", Nothing}, []any{closed.Step == Aborted, a}, "%s %s: it may be a short outage", name, bmh)
		}

		c.returns(&s)
		if s.API == APIReachable {
			s.Node = Node{Exists: Yes, UID: r.Target.NodeUID, SystemUUID: r.Target.SystemUUID, BootID: r.Target.BootID}
		}
		for range 5 {
			at(time.Minute)
		}
		assert.Equal(t, c.finishes, r.Step, name)
	}
}

// A look that could not read one object counts as one without an API. A run does not wait for what it does not need: whoever writes an object that
// cannot be read would keep it open for ever, and our power lock where it is. // L1, L5
func TestRunNeedsOnlyItsNodeAndItsPowerLock(t *testing.T) {
	r, s := begin(PowerOn, time.Hour)
	on(&s)
	metal3(&r, &s, No)
	r.Abandon, r.AbandonTo, r.Reason, r.Isolated, r.Limits.RetryInterval = reason.Withdrawn, Aborted, reason.Withdrawn, time.Time{}, time.Minute
	r.Started, s.API = ago(r.Limits.RunTimeout+1), APIUnreachable
	s.Node = Node{Exists: Yes, UID: r.Target.NodeUID}
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, []any{Aborted, reason.Withdrawn}, []any{got.Step, got.Reason})

	s.PowerLock = Yes
	_, a, _ := Next(r, s, noon)
	assert.Equal(t, ReleasePowerLock, a)
	r.Step, r.APILost = Held, r.Started
	asIs(&r)
	got, a, _ = Next(r, s, noon)
	assert.Equal(t, []any{Held, ReleasePowerLock}, []any{got.Step, a})
}

// A kubeconfig of a separate management cluster may lead to another one, which has no such Machine: that ends no run
// as if the Machine had been replaced. // I27
func TestMachineThatAnotherManagementClusterLacksIsNotGone(t *testing.T) {
	for name, c := range map[string]struct {
		frozen, seen string
		ends         bool
	}{
		"the same":              {"home", "home", true},
		"another one":           {"home", "another", false},
		"it does not say which": {"home", "", false},
		"a record without it":   {"", "home", true},
		"no management cluster": {"", "", true},
	} {
		for _, in := range []Step{Held, Waiting, Reprovision} {
			r, s := begin(Held, time.Hour)
			r.Isolated, r.Reason, r.Step = ago(time.Hour), reason.AttemptsExhausted, in
			r.Wait, r.Limits.RetryInterval = &Wait{Since: ago(time.Minute), Code: r.Reason, Count: 1}, time.Minute
			s.Node, s.Machine = Node{Exists: No}, Machine{Exists: No}
			r.Target.ClusterUID, s.ClusterUID, r.Target.ManagementUID, s.ManagementUID = "work", "work", c.frozen, c.seen
			got, a, _ := Next(r, s, noon)
			assert.Equal(t, []any{c.ends, Nothing}, []any{got.Step == Reprovisioned, a}, "%s, %s: %s", name, in, got.Step)
		}
	}
}

// A record of an old backup says what was true once. Whatever its step is, its run ends by itself while the host
// works: without a power command, without a false Off. // I1, I5, I20, I27
func TestRunOfAnOldBackupEndsWhileItsHostWorks(t *testing.T) {
	played := 0
	for _, step := range []Step{PowerOff, DeleteNode, PowerOn, AwaitNode, RestoreNode, Reprovision, Waiting, Held} {
		for _, isolation := range []Isolation{IsolateDelete, IsolateTaint} {
			for attempt := 1; attempt <= 2; attempt++ {
				for _, isolated := range []bool{false, true} {
					for _, saved := range []bool{false, true} {
						for _, node := range []string{"u1", "u9"} { // it was never isolated, or it was, and has registered again
							name := fmt.Sprintf("%s %s attempt %d, isolated %t, saved %t, Node %s", step, isolation, attempt, isolated, saved, node)
							r, s := begin(step, sec)
							r.Isolation, r.Attempt, r.Limits.RetryInterval = isolation, attempt, time.Minute
							if r.Isolated = (time.Time{}); isolated {
								r.Isolated = ago(time.Minute)
							}
							if step.Idle() {
								r.Reason, r.Wait = reason.AttemptsExhausted, &Wait{Since: ago(time.Minute), Code: reason.AttemptsExhausted, Count: 1}
							}
							if node == "u1" && isolation == IsolateDelete && (isolated || step.afterIsolation()) || step == PowerOn && !isolated {
								continue // there is no such record
							}
							s.Node = Node{Exists: Yes, UID: node, ResourceVersion: "9", BootID: "b9", SystemUUID: "s", Ready: Yes, Created: ago(time.Hour)}
							s.Lease.ResourceVersion, s.Justified, s.Backup, s.OffAccepted = "v9", No, Backup{}, false
							if saved {
								s.Backup = Backup{UID: "u1", ResourceVersion: "1"}
							}
							on(&s)
							played++
							endsUntouched(t, name, r, s)
						}
					}
				}
			}
		}
	}
	assert.Equal(t, 196, played)
}

// A run of an old backup in step 3 sends no On before anything says that its host may be off. The process that has
// sent the Off itself need not ask. // I20
func TestOldBackupSendsNoOnInTheDark(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*Observation)
		want Action
	}{
		"neither answers":            {func(*Observation) {}, Nothing},
		"another cluster answers":    {func(s *Observation) { s.API, s.ClusterUID = APIReachable, "another" }, Nothing},
		"the API server answers":     {func(s *Observation) { s.API = APIReachable }, SendOn},
		"it answers that it may not": {func(s *Observation) { s.API = APIForbidden }, SendOn},
		"the BMC reads Off":          {func(s *Observation) { s.Power.State, s.PowerError = bmc.Off, "" }, SendOn},
		"this process has sent Off":  {func(s *Observation) { s.OffAccepted = true }, SendOn},
	} {
		r, s := begin(PowerOn, 2*minute)
		r.Target.ClusterUID, s.ClusterUID = "home", ""
		noAPI(&s)
		unread(&s, bmc.KindUnreachable)
		s.OffAccepted = false
		c.set(&s)
		if s.API == APIReachable && s.ClusterUID == "" {
			s.ClusterUID = "home"
		}
		r, a, _ := Next(r, s, noon)
		assert.Equal(t, []any{PowerOn, c.want}, []any{r.Step, a}, name)
	}
	r, s := begin(PowerOn, time.Hour) // its time does not run out meanwhile
	noAPI(&s)
	unread(&s, bmc.KindUnreachable)
	s.OffAccepted = false
	r, a, _ := Next(r, s, noon)
	assert.Equal(t, []any{PowerOn, noon, Nothing}, []any{r.Step, r.StepStarted, a})
}

func (s Step) afterIsolation() bool { return s == AwaitNode || s == RestoreNode || s == Reprovision }

// endsUntouched plays a run on one unchanging look.
func endsUntouched(t *testing.T, name string, r Run, s Observation) {
	t.Helper()
	now := noon
	for range 3000 {
		if r.Step.Ended() {
			return
		}
		s.Level, s.At, s.Power.At = r.Level, now, now
		next, a, wait := Next(r, s, now)
		switch a {
		case Nothing, RestoreTargetNode, ReleasePowerLock:
		default:
			t.Errorf("%s: %s in step %s", name, a, r.Step)
			return
		}
		if next.Reason == reason.FalseOff || s.Power.State != bmc.On {
			t.Errorf("%s: FalseOff from step %s: %s", name, r.Step, next.Note)
			return
		}
		r, now = next, now.Add(max(wait, time.Millisecond))
	}
	t.Errorf("%s: does not end: %s %s: %s", name, r.Step, r.Reason, r.Note)
}
