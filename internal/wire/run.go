package wire

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// RunStatus is one open run in a Status.
type RunStatus struct {
	ID       string    `json:"id"`
	Cluster  string    `json:"cluster"`
	Node     string    `json:"node"`
	Machine  string    `json:"machine"` // namespace/name
	Step     string    `json:"step"`
	Attempt  int       `json:"attempt"`
	Started  time.Time `json:"started"`
	Deadline time.Time `json:"deadline,omitzero"` // of the step
	Reason   string    `json:"reason"`
	Class    string    `json:"class,omitempty"` // of the reason: transient, mended or person
	// NextTry is when a Waiting run goes on by itself, at the earliest; absent while its cause
	// lasts.
	NextTry time.Time `json:"nextTry,omitzero"`
	Note    string    `json:"note,omitempty"` // the sentence to Reason
	Next    string    `json:"next,omitempty"` // what a person can do about a run that is Waiting or Held
	// LastError is the newest failure since the run entered its step.
	LastError *RunError `json:"lastError,omitempty"`
}

// RecentRun is a run that has ended, in a Status.
type RecentRun struct {
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"`
	Node    string    `json:"node"`
	Machine string    `json:"machine"` // namespace/name
	Actor   string    `json:"actor,omitempty"`
	Result  string    `json:"result"`
	Reason  string    `json:"reason,omitempty"`
	Note    string    `json:"note,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}

// The runs that a Status lists after their end.
const (
	recentFor = 24 * time.Hour
	maxRecent = 20
)

// RecentRuns lists the newest of the runs that ended in the last 24 hours, newest first, and says how many more there are.
func RecentRuns(all []remediate.Run, now time.Time) (list []RecentRun, more int) {
	for i := range all {
		r := &all[i]
		if r.Open() || now.Sub(r.Ended) > recentFor {
			continue
		}
		rec := RecentRun{ID: r.ID, Cluster: r.Target.Cluster, Node: r.Target.Node, Machine: r.Target.MachineKey(),
			Result: ResultOf(r.Step), Reason: string(r.Reason), Note: r.Note, Started: r.Began(), Ended: r.Ended}
		if r.Manual != nil {
			rec.Actor = r.Manual.Actor
		}
		list = append(list, rec)
	}
	slices.SortFunc(list, func(a, b RecentRun) int { return cmp.Or(b.Ended.Compare(a.Ended), strings.Compare(b.ID, a.ID)) })
	shown := min(len(list), maxRecent)
	return list[:shown], len(list) - shown
}

// Timeline is runs with their steps, oldest first.
type Timeline struct {
	Runs []RunRecord `json:"runs"`
	// Notes are what else happened to the Node, the Machine or the run, oldest first. The daemon
	// keeps a limited number of them. None in a list of runs.
	Notes []Note `json:"notes,omitempty"`
	// Blocked is what forbids the remediation of the Node or the Machine now.
	Blocked []Blocked `json:"blocked,omitempty"`
}

// The results of a run.
const (
	ResultRunning       = "Running"
	ResultDone          = "Done"
	ResultWaiting       = "Waiting"
	ResultHeld          = "Held"
	ResultAborted       = "Aborted"
	ResultReprovisioned = "Reprovisioned"
)

// RunRecord is one run, open or ended, as a timeline shows it.
type RunRecord struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Machine string `json:"machine"` // namespace/name
	Trigger string `json:"trigger"`
	Actor   string `json:"actor,omitempty"` // who fenced by hand
	// Proof is what the host was known from to be off: BMC, Device or Human.
	Proof string `json:"proof,omitempty"`
	// OffReads are the reads of Off that the proof stands on, oldest first: one while the second is awaited, two once the host
	// is proven off. The daemon that carried the run out has them in memory, until it is restarted. Its audit log has
	// the last reading in the entry of the action.
	OffReads []OffRead `json:"offReads,omitempty"`
	// ConfirmedBy is who confirmed by hand that it was off. It is never removed.
	ConfirmedBy     string       `json:"confirmedBy,omitempty"`
	ConfirmedReason string       `json:"confirmedReason,omitempty"`
	Result          string       `json:"result"`
	Reason          string       `json:"reason"`          // stable code when Waiting, Held or Aborted
	Class           string       `json:"class,omitempty"` // of the reason: transient, mended or person
	Note            string       `json:"note,omitempty"`
	LastError       *RunError    `json:"lastError,omitempty"` // of an open run, since it entered its step
	Started         time.Time    `json:"started"`
	Ended           time.Time    `json:"ended,omitzero"`
	Deadline        time.Time    `json:"deadline,omitzero"` // of the step that is open
	Steps           []StepRecord `json:"steps"`
}

// OffRead is one read of Off of a power level.
type OffRead struct {
	At     time.Time `json:"at"`
	Device string    `json:"device,omitempty"` // its address; of a level of several devices, all of them: "pdu-a#7 + pdu-b#7"
}

// StepRecord is one stay in one of the six steps.
type StepRecord struct {
	Step    string    `json:"step"`
	Attempt int       `json:"attempt"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Note    string    `json:"note"`
	// Course is what was done in the step, and what was waited for, oldest first. The daemon keeps it as long as Notes.
	Course []string `json:"course,omitempty"`
}

// StatusOfRun gives the line of an open run in a Status.
func StatusOfRun(r remediate.Run) RunStatus {
	return RunStatus{
		ID: r.ID, Cluster: r.Target.Cluster, Node: r.Target.Node, Machine: r.Target.MachineKey(),
		Step: stepShown(r), Attempt: r.Attempt, Started: r.Began(), Deadline: r.Deadline(),
		Reason: string(r.Reason), Class: string(reason.ClassOf(r.Reason)), NextTry: r.NextTry(), Note: r.Note,
	}
}

// FromRun gives the record of a run for a timeline.
func FromRun(r remediate.Run) RunRecord {
	rec := RunRecord{
		ID: r.ID, Cluster: r.Target.Cluster, Node: r.Target.Node, Machine: r.Target.MachineKey(),
		Trigger: r.Trigger, Proof: string(r.Proof), Result: ResultOf(r.Step), Reason: string(r.Reason), Class: string(reason.ClassOf(r.Reason)), Note: r.Note,
		Started: r.Began(), Ended: r.Ended, Steps: []StepRecord{},
	}
	if rec.Result == ResultRunning {
		rec.Deadline = r.Deadline()
	}
	if r.Manual != nil {
		rec.Actor = r.Manual.Actor
	}
	if r.Confirmed != nil {
		rec.ConfirmedBy, rec.ConfirmedReason = r.Confirmed.Actor, r.Confirmed.Reason
	}
	for _, v := range r.Steps {
		// The journal also notes stays in Waiting and Held and the ends; a timeline shows
		// the six steps, and the result says the rest.
		if StepNumber(string(v.Step)) > 0 && !passedStep6(r, v) {
			rec.Steps = append(rec.Steps, StepRecord{
				Step: string(v.Step), Attempt: v.Attempt, Started: v.Started, Ended: v.Ended, Note: v.Note,
			})
		}
	}
	return rec
}

// passedStep6 says whether a stay in step 6 is none to show: a run whose power cycles are used up, or
// whose host does not come on, always comes there, and waits or is Held at once where the Machine may
// not be replaced.
func passedStep6(r remediate.Run, v remediate.Visit) bool {
	switch {
	case v.Step != remediate.Reprovision || r.Strategy == remediate.DeleteMachine:
		return false
	case v.Ended.IsZero():
		return r.Intent.Action != remediate.DeleteTargetMachine
	}
	switch v.Reason() {
	case reason.AttemptsExhausted, reason.PowerOnFailed, reason.OutletContradicted, reason.NodeRenamed:
		return true
	}
	return false
}

// stepShown is the step of an open run: the last one that a timeline shows, if the run only
// passes step 6.
func stepShown(r remediate.Run) string {
	n := len(r.Steps)
	if n < 2 || r.Step != remediate.Reprovision || !passedStep6(r, r.Steps[n-1]) {
		return string(r.Step)
	}
	return string(r.Steps[n-2].Step)
}

// StepNumber is the place of a step among the six, 0 for anything else.
func StepNumber(step string) int { return slices.Index(remediate.Steps, remediate.Step(step)) + 1 }

// ResultOf is the result of a run in a step.
func ResultOf(s remediate.Step) string {
	if s.Idle() || s.Ended() {
		return string(s)
	}
	return ResultRunning
}

// RunFilter selects runs; empty fields select all.
type RunFilter struct {
	ID      string
	Cluster string
	Node    string
	Machine string    // namespace/name
	Since   time.Time // runs that started then or later
}

// Note is something about a Node or a Machine, or about one of its runs, that is no step: an order
// of a person, a refusal, a failure.
type Note struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"` // of the event
	Run     string    `json:"run,omitempty"`
	Check   string    `json:"check,omitempty"`
	Actor   string    `json:"actor,omitempty"` // who gave an order
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message"`
	// Count is how often it happened in a row, and Last when it last did; absent for once.
	Count int       `json:"count,omitempty"`
	Last  time.Time `json:"last,omitzero"`
}

// RunError is the newest failure of an open run since it entered its step.
type RunError struct {
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message"`
}

// Text is the failure with its reason code, if it has one.
func (e RunError) Text() string {
	if e.Reason == "" {
		return e.Message
	}
	return e.Reason + ": " + e.Message
}

// Event is one thing that happened, in the order it happened.
type Event struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Cluster string    `json:"cluster,omitempty"`
	Node    string    `json:"node,omitempty"`
	Machine string    `json:"machine,omitempty"` // namespace/name, of a target without a Node
	Run     string    `json:"run,omitempty"`
	Type    string    `json:"type"`
	Step    string    `json:"step,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Class   string    `json:"class,omitempty"` // of the reason: transient, mended or person
	Message string    `json:"message,omitempty"`
	// Stream is the stream that Seq counts in: another start of the daemon has another one.
	Stream string `json:"stream,omitempty"`
}
