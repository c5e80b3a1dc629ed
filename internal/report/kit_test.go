package report

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// board is a cluster that keeps what is written to it.
type board struct {
	mu    sync.Mutex
	notes []event.KubeEvent
	marks map[markKey]event.RunMark
	wrote []event.RunMark
	fails error
	only  string        // the kind of object at which writing fails; empty: all
	takes time.Duration // of writing a mark
}

func (b *board) QueueEvent(e event.KubeEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, e)
}

func (b *board) Marked() []event.RunMark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.marks))
}

func (b *board) Mark(ctx context.Context, m event.RunMark) error {
	b.mu.Lock()
	takes := b.takes
	b.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(takes):
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrote = append(b.wrote, m)
	if b.fails != nil && (b.only == "" || b.only == m.Kind) {
		return b.fails
	}
	if m.Run == "" {
		delete(b.marks, keyOf(m))
		return nil
	}
	b.marks[keyOf(m)] = m
	return nil
}

// written and noted are what was written so far.
func (b *board) written() []event.RunMark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrote)
}

func (b *board) noted() []event.KubeEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.notes)
}

// set changes how the cluster answers.
func (b *board) set(takes time.Duration, fails error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takes, b.fails = takes, fails
}

// on lists what was reported on a kind of object: "Normal Reason" or "Warning Reason".
func (b *board) on(kind string) (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.notes {
		typ := "Normal "
		if n.Warning {
			typ = "Warning "
		}
		if n.Kind == kind {
			list = append(list, typ+n.Reason)
		}
	}
	return list
}

// step is what the mark on a kind of object says; "" without one.
func (b *board) step(kind string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.marks {
		if m.Kind == kind {
			return m.Run + " " + m.Step
		}
	}
	return ""
}

// desk is a Report with the engine that it reads, in virtual time.
type desk struct {
	*board
	events *event.Stream

	mu      sync.Mutex
	state   State
	runs    map[string]remediate.Run
	report  *Report
	nodeUID string // of the Node n that exists; "" without one
	machine bool   // exists
}

const clusterName = "c"

func atDesk(t *testing.T, run func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{board: &board{marks: map[markKey]event.RunMark{}}, events: event.NewStream(), state: State{Acts: true, Armed: true, Checks: []event.Check{machineCheck}},
			runs: map[string]remediate.Run{}, nodeUID: "node-1", machine: true}
		r := New(Options{Events: d.events, State: d.now, Run: d.run, Target: d.target, Present: d.present, OffReadSpacing: 3 * time.Second, Instance: "f-1"})
		d.report = r
		r.Attach(clusterName, d.board)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		run(t, d)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (d *desk) now(string) State {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.state
	for _, r := range d.runs {
		if r.Open() {
			s.Runs = append(s.Runs, r)
		}
	}
	return s
}

func (d *desk) run(cluster, id string) (remediate.Run, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, known := d.runs[id]
	return r, known && cluster == clusterName
}

func (d *desk) target(_, node, machine string) (remediate.Target, bool) {
	if node == "n" || machine == "ns/m" {
		return target, true
	}
	return remediate.Target{}, false
}

func (d *desk) present(string, remediate.Target) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nodeUID, d.machine
}

// change changes the desk under its lock.
func (d *desk) change(f func(d *desk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// emit emits an event, and gives the reader the time for it.
func (d *desk) emit(e event.Event) {
	e.Cluster = clusterName
	d.events.Emit(e)
	time.Sleep(2*gather + time.Millisecond) // the reader, and then the marker, may rest
	synctest.Wait()
}

// enter lets a run enter a step, as its worker does: the record first, then the event.
func (d *desk) enter(id string, to remediate.Step, changes ...func(*remediate.Run)) {
	now := time.Now().UTC()
	var r remediate.Run
	d.change(func(d *desk) {
		r = d.runs[id]
		if n := len(r.Steps); n > 0 {
			r.Steps[n-1].Ended = now
		}
		r.Step, r.StepStarted, r.Intent = to, now, remediate.Intent{}
		for _, change := range changes {
			change(&r)
		}
		if !to.Ended() {
			r.Steps = append(slices.Clone(r.Steps), remediate.Visit{Step: to, Started: now})
		}
		d.runs[id] = r
	})
	d.emit(event.Event{Type: event.Stepped, Node: r.Target.Node, Machine: r.Target.WithoutNode(), Run: id, Step: to, Reason: r.Reason, Message: r.Note})
}

// begin starts a run, as package admit does.
func (d *desk) begin(id string, r remediate.Run) {
	r.ID = id
	r = remediate.Begin(r, time.Now().UTC())
	d.change(func(d *desk) { d.runs[id] = r })
	d.emit(event.Event{Type: event.Started, Node: r.Target.Node, Machine: r.Target.WithoutNode(), Run: id, Step: r.Step, Check: r.CheckID, Message: r.Trigger})
}

var (
	errForbidden = errors.New("forbidden")
	target       = remediate.Target{Cluster: clusterName, Node: "n", NodeUID: "node-1", Namespace: "ns", Machine: "m", MachineUID: "machine-1", MachineAPI: "machine.openshift.io/v1beta1"}
	machineCheck = event.Check{APIVersion: "machine.openshift.io/v1beta1", Kind: "MachineHealthCheck", Namespace: "ns", Name: "workers", UID: "check-1"}
)

// powerCycle is a run that a check in the cluster asked for.
func powerCycle() remediate.Run {
	return remediate.Run{Target: target, Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete, Trigger: "Ready=Unknown for 5m",
		CheckID: "MachineHealthCheck.machine.openshift.io ns/workers", Proof: remediate.ProofBMC}
}

func isolated(r *remediate.Run) { r.Isolated = r.StepStarted }

func withReason(code, note string) func(*remediate.Run) {
	return func(r *remediate.Run) { r.Note = note; r.Reason = reason.Code(code) }
}
