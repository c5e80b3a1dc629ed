package remediate

import (
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// An interlock is a fact that forbids what a run would do next: a pause, another remediator,
// a lost quorum. All of them stand in one table. Its rows are in order of precedence: the
// first that binds decides. Its columns are the stages of a run; a cell says what follows.
//
// A step asks the table after "is my goal reached". While the first command of step 1 has had no
// effect, step 1 asks once more, after it has looked at its power level and its deadline. Steps 3
// to 5 do not ask: after the isolation nothing may keep a host off. docs/six-steps.md shows the
// table, with the words in quotes below.

// stage is a part of a step in which an interlock leads to the same.
type stage uint8

const (
	stageUntouched          stage = iota // step 1, first attempt, before its first command or since a retry
	stageLaterAttempt                    // the same of a later attempt: a Node was isolated before
	stageSwitchingOff                    // step 1, after the first command
	stageNoEffect                        // the same, first attempt, while no lock and no Off has taken effect
	stageConfirmed                       // step 1, the level cannot be read, and a manual confirmation is active
	stageIsolating                       // step 2, on a proof
	stageIsolatingConfirmed              // step 2, on a manual confirmation alone
	stageDeletingMachine                 // step 6, strategy DeleteMachine
	stageReprovisioning                  // step 6, after power cycles
	stageHeld                            // Held, and a person orders step 1 again
	stages
)

// effect is what an interlock leads to. The order counts: the effects up to refuse do not end the
// step, the others do (binding.ends).
type effect uint8

const (
	proceed  effect = iota // the interlock does not bind here
	wait                   // "wait": nothing is begun; the step's deadline counts on
	refuse                 // "refuse": the order is not carried out
	drop                   // "drop": Aborted at once; where something was touched, as abandons
	abandons               // "back": back to On, then Aborted
	holds                  // "hold": Held
	finishes               // "end": Aborted at once
	rests                  // "rest": the run stops without another power cycle, and waits
	restore                // "order": the unfence or abort is carried out
)

// interlock is one row of the table.
type interlock struct {
	name  string // for docs/six-steps.md
	binds func(r Run, s Observation) bool
	why   func(r Run, s Observation) (code reason.Code, note string)
	at    [stages]effect
}

// interlocks is the table. A fact whose precedence differs between stages has two rows: which
// goes first decides under which reason a run ends, and sometimes how, when two bind at once.
var interlocks = []interlock{
	// In a later attempt and in step 6 a pause only waits, and on a confirmation it leaves the host
	// off. There the order to bring the host back goes first. In step 6 of DeleteMachine both end
	// the run, and the order is the reason.
	{"unfence or abort ordered", func(r Run, _ Observation) bool { return restoreRequested(r) }, nil,
		[stages]effect{stageLaterAttempt: restore, stageConfirmed: restore, stageDeletingMachine: restore, stageReprovisioning: restore}},
	{"paused, or node held", func(_ Run, s Observation) bool { return s.Paused }, pausedWhy, // I13, I16, I23
		[stages]effect{stageUntouched: drop, stageLaterAttempt: wait, stageSwitchingOff: abandons, stageConfirmed: drop,
			stageIsolating: abandons, stageIsolatingConfirmed: abandons, stageDeletingMachine: finishes, stageReprovisioning: wait, stageHeld: refuse}},
	{"unfence or abort ordered", func(r Run, _ Observation) bool { return restoreRequested(r) }, nil,
		[stages]effect{stageUntouched: restore, stageSwitchingOff: restore, stageIsolating: restore, stageIsolatingConfirmed: restore}},
	// What the record froze must be what a fresh look shows, in every attempt, before a command and
	// until the Node is isolated. // I2, I27
	{"object replaced", isReplaced, replacedWhy,
		[stages]effect{stageUntouched: drop, stageLaterAttempt: rests, stageSwitchingOff: abandons, stageConfirmed: drop,
			stageIsolating: abandons, stageIsolatingConfirmed: abandons, stageReprovisioning: rests, stageHeld: refuse}},
	// Before the first command each of these drops the run, and another machine's BMC is the most
	// useful reason. After it, another machine's BMC makes the run Held, but another remediator
	// ends it, so another remediator goes first.
	{"another machine's BMC", identityMismatch, identityWhy, // I8
		[stages]effect{stageUntouched: drop, stageLaterAttempt: wait}},
	{"another remediator", func(_ Run, s Observation) bool { return s.Contested == Yes }, contestedWhy, // I22
		[stages]effect{stageUntouched: drop, stageLaterAttempt: wait, stageSwitchingOff: abandons, stageConfirmed: drop,
			stageIsolating: abandons, stageIsolatingConfirmed: abandons, stageDeletingMachine: finishes, stageReprovisioning: wait, stageHeld: refuse}},
	{"another machine's BMC", identityMismatch, identityWhy,
		[stages]effect{stageSwitchingOff: holds, stageConfirmed: holds}},
	// A run that has recovered ends under that reason, even if it may not be switched off either.
	{"recovered", func(_ Run, s Observation) bool { return s.Justified == No }, recoveredWhy, // I4
		[stages]effect{stageNoEffect: abandons, stageDeletingMachine: finishes}},
	{"power-off forbidden", func(_ Run, s Observation) bool { return s.PowerForbidden != "" }, forbiddenWhy, // I5, I9
		[stages]effect{stageUntouched: drop, stageLaterAttempt: wait, stageNoEffect: abandons, stageConfirmed: drop, stageHeld: refuse}},
	// A kubelet that renews so seldom would not have missed a renewal when the wait after the Off ends.
	{"Lease too long", func(_ Run, s Observation) bool { return times.LeaseTooLong(s.Lease.Duration) != "" }, leaseWhy, // I5
		[stages]effect{stageUntouched: drop, stageLaterAttempt: wait, stageConfirmed: drop, stageHeld: refuse}},
	{"target changed", targetChanged, targetWhy, // I2
		[stages]effect{stageUntouched: drop}},
	// A manual confirmation justifies itself.
	{"recovered", func(r Run, s Observation) bool { return s.Justified == No && !confirmationActive(r) }, recoveredWhy, // I4
		[stages]effect{stageUntouched: drop}},
	// What a run has begun it takes back, or completes where the Node is isolated. A manual
	// confirmation is an order of its own.
	{"no longer asked for", func(r Run, s Observation) bool { return s.Withdrawn == Yes && !confirmationActive(r) }, withdrawnWhy, // I4
		[stages]effect{stageUntouched: drop, stageLaterAttempt: rests, stageSwitchingOff: abandons, stageDeletingMachine: finishes,
			stageReprovisioning: rests}},
	{"quorum lost", func(r Run, s Observation) bool { return r.ControlPlane && s.Quorum == No }, quorumWhy, // I12
		[stages]effect{stageUntouched: drop, stageLaterAttempt: wait, stageNoEffect: abandons, stageConfirmed: drop,
			stageIsolatingConfirmed: abandons, stageDeletingMachine: finishes}},
	{"target changed", func(r Run, s Observation) bool { return r.Attempt == 1 && targetChanged(r, s) }, targetWhy,
		[stages]effect{stageSwitchingOff: abandons, stageConfirmed: drop}},
}

func identityMismatch(_ Run, s Observation) bool { return s.Identity == No }

func isReplaced(r Run, s Observation) bool { return notAsRecorded(r, s) != "" }

func replacedWhy(r Run, s Observation) (reason.Code, string) {
	return reason.TargetChanged, notAsRecorded(r, s)
}

func targetChanged(r Run, s Observation) bool {
	return s.Node.Exists == Yes && s.Node.UID != r.Target.NodeUID
}

func pausedWhy(_ Run, s Observation) (code reason.Code, note string) {
	if s.PausedReason != "" {
		return s.PausedReason, s.PausedWhy
	}
	return reason.Paused, strings.TrimSuffix("paused before the point of no return: "+s.PausedWhy, ": ")
}

func contestedWhy(_ Run, s Observation) (reason.Code, string) { return reason.Contested, s.Contender }

func recoveredWhy(_ Run, s Observation) (reason.Code, string) { return reason.Recovered, s.Why }

func withdrawnWhy(_ Run, s Observation) (reason.Code, string) {
	return reason.Withdrawn, s.WithdrawnWhy
}

func forbiddenWhy(_ Run, s Observation) (reason.Code, string) {
	return reason.PowerForbidden, s.PowerForbidden
}

func leaseWhy(_ Run, s Observation) (reason.Code, string) {
	return reason.LeaseTooLong, times.LeaseTooLong(s.Lease.Duration)
}

func quorumWhy(_ Run, s Observation) (reason.Code, string) { return reason.QuorumLost, s.QuorumWhy }

func identityWhy(Run, Observation) (reason.Code, string) {
	return reason.IdentityMismatch, "the BMC belongs to another machine than the Node"
}

func targetWhy(Run, Observation) (reason.Code, string) {
	return reason.TargetChanged, "the Node was replaced since the decision"
}

// binding is the interlock that decides at a stage; the zero value forbids nothing.
type binding struct {
	effect
	why func(r Run, s Observation) (code reason.Code, note string)
}

// interlockAt asks the table.
func interlockAt(at stage, r Run, s Observation) binding {
	i := slices.IndexFunc(interlocks, func(i interlock) bool { return i.at[at] != proceed && i.binds(r, s) })
	if i < 0 {
		return binding{}
	}
	return binding{interlocks[i].at[at], interlocks[i].why}
}

// ends says whether the step ends here. A step that only waits looks at its deadline first.
func (b binding) ends() bool { return b.effect > refuse }

// apply ends the step as the table says.
func (b binding) apply(r Run, s Observation, now time.Time) (Run, Action, time.Duration) {
	if b.effect == restore {
		return handleRestore(r, now)
	}
	switch code, note := b.why(r, s); b.effect {
	case drop:
		return dropAttempt(r, code, note, now)
	case abandons:
		return abandon(r, code, note, Aborted, now)
	case holds:
		return stop(r, code, note, now)
	case rests:
		return rest(r, code, note, now)
	default:
		return finish(r, Aborted, code, note, now)
	}
}
