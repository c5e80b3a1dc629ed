package timeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// happened is one event about n-1.
func happened(minutes int, e event.Event) event.Event {
	e.At, e.Cluster, e.Node = noon.Add(time.Duration(minutes)*time.Minute), "prod", "n-1"
	return e
}

// Orders, refusals and failures are noted; what repeats is counted; steps are in the timeline anyway.
func TestNotesAreWhatHappensBesideTheSteps(t *testing.T) {
	n := New()
	failed := event.Event{Type: event.Failed, Run: "r-1", Action: remediate.SendOff, Reason: "BMCBusy", Message: "busy\x1b"}
	for _, e := range []event.Event{
		happened(0, event.Event{Type: event.Refused, Check: "k", Reason: "ShortCircuit", Message: "limit"}),
		happened(1, event.Event{Type: event.Started, Run: "r-1"}),
		happened(2, failed), happened(3, failed), happened(4, failed),
		happened(5, event.Event{Type: event.Stepped, Run: "r-1", Step: remediate.DeleteNode}),
	} {
		n.Observe(e)
	}
	n.Observe(event.Event{At: noon.Add(6 * time.Minute), Type: event.Ordered, Node: "n-1", Actor: "anna", Message: "anna tests the BMCs of n-1"})
	n.Observe(event.Event{At: noon, Type: event.Ordered, Cluster: "dev", Node: "n-1", Message: "elsewhere"})
	n.Observe(event.Event{At: noon, Type: event.Ordered, Cluster: "prod", Message: "pauses it"})
	n.Observe(event.Event{At: noon, Type: event.Refused, Cluster: "prod", Machine: "ns/m-1", Message: "no Node"})
	assert.Equal(t, []wire.Note{
		{At: noon, Type: "Refused", Check: "k", Reason: "ShortCircuit", Message: "limit"},
		{At: noon.Add(2 * time.Minute), Type: "Failed", Run: "r-1", Reason: "BMCBusy", Message: "SendOff: busy ", Count: 3, Last: noon.Add(4 * time.Minute)},
		{At: noon.Add(6 * time.Minute), Type: "Order", Actor: "anna", Message: "anna tests the BMCs of n-1"},
	}, n.Of("prod", "n-1"))
	assert.Len(t, n.Of("prod", "n-1", "ns/m-1"), 4)
	assert.Empty(t, n.Of("prod", "n-2", ""))
}

// The last error of a run is that of its step. A run that stopped keeps the one for which it did.
func TestLastErrorIsThatOfTheStep(t *testing.T) {
	n := New()
	fail := func() {
		n.Observe(happened(0, event.Event{Type: event.Failed, Run: "r-1", Reason: "BMCUnreachable", Message: "no answer"}))
	}
	step := func(s remediate.Step) *wire.RunError {
		n.Observe(happened(1, event.Event{Type: event.Stepped, Run: "r-1", Step: s}))
		return n.LastError("r-1")
	}
	fail()
	assert.Equal(t, &wire.RunError{At: noon, Reason: "BMCUnreachable", Message: "no answer"}, n.LastError("r-1"))
	assert.NotNil(t, step(remediate.Held))
	assert.Nil(t, step(remediate.PowerOff))
	fail()
	assert.NotNil(t, step(remediate.Waiting))
	assert.Nil(t, step(remediate.Done))
	assert.Nil(t, n.LastError("r-2"))
}

// What is kept is limited, of one Node and of all.
func TestNotesAreLimited(t *testing.T) {
	n := New()
	for i := range 3 * notesOfOne {
		n.Observe(happened(i, event.Event{Type: event.Ordered, Message: fmt.Sprint(i)}))
	}
	list := n.Of("prod", "n-1")
	require.Len(t, list, notesOfOne)
	assert.Equal(t, fmt.Sprint(3*notesOfOne-1), list[notesOfOne-1].Message, "the newest")
	for i := range 2 * noteTargets {
		n.Observe(event.Event{At: noon.Add(time.Duration(1000+i) * time.Minute), Type: event.Failed, Cluster: "prod", Node: fmt.Sprint("m-", i), Run: fmt.Sprint("r-", i)})
	}
	assert.Len(t, n.about, noteTargets)
	assert.LessOrEqual(t, len(n.errors), noteTargets)
	assert.Empty(t, n.Of("prod", "n-1"), "the oldest is forgotten")
	assert.NotEmpty(t, n.Of("prod", fmt.Sprint("m-", 2*noteTargets-1)))
}

// The timeline of a run has what is about it, and what is about no run while it was open.
func TestNotesOfARun(t *testing.T) {
	runs := []wire.RunRecord{{ID: "r-1", Started: noon, Ended: noon.Add(time.Hour)}}
	for _, tc := range []struct {
		note wire.Note
		want bool
	}{
		{wire.Note{Run: "r-1", At: noon.Add(-time.Minute)}, true},
		{wire.Note{Run: "r-2", At: noon.Add(time.Minute)}, false},
		{wire.Note{At: noon.Add(time.Minute)}, true},
		{wire.Note{At: noon.Add(-time.Minute)}, false},
		{wire.Note{At: noon.Add(2 * time.Hour)}, false},
	} {
		assert.Equal(t, tc.want, During(tc.note, runs), "%+v", tc.note)
	}
}

// The steps of a run have its power commands and its waits. A command that failed was not sent.
func TestCourseOfARun(t *testing.T) {
	n := New()
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	did := func(seconds int, e event.Event) {
		e.At, e.Cluster, e.Node, e.Run = at(seconds), "prod", "n-1", "r-1"
		n.Observe(e)
	}
	off, on := event.Event{Type: event.Acting, Action: remediate.SendOff}, event.Event{Type: event.Acting, Action: remediate.SendOn}
	did(1, off)
	did(2, event.Event{Type: event.Failed, Action: remediate.SendOff, Message: "busy"})
	did(3, off)
	did(13, off)
	did(16, event.Event{Type: event.Acting, Action: remediate.BackupNode})
	did(40, event.Event{Type: event.Waited, Message: "waited 20 s for pod web-0"})
	did(41, on)
	did(42, event.Event{Type: event.Failed, Message: "read the BMC: no answer"})
	n.Observe(event.Event{At: at(5), Type: event.Acting, Action: remediate.SendOff, Cluster: "prod", Node: "n-2", Run: "r-2"})
	r := wire.RunRecord{ID: "r-1", Proof: "BMC", Steps: []wire.StepRecord{
		{Step: "PowerOff", Started: at(0), Ended: at(16)}, {Step: "DeleteNode", Started: at(16), Ended: at(17)}, {Step: "PowerOn", Started: at(17)},
	}}
	n.AddCourse(&r)
	assert.Equal(t, []string{"Off failed 12:00:02Z", "Off sent 12:00:03Z, and again until 12:00:13Z (2 times)", "read Off twice"}, r.Steps[0].Course)
	assert.Empty(t, r.Steps[1].Course)
	assert.Equal(t, []string{"waited 20 s for pod web-0", "On sent 12:00:41Z"}, r.Steps[2].Course)
	assert.Equal(t, r.Steps[2].Course, n.Between("r-1", at(17), at(60)), "as the Events tell it")

	confirmed := wire.RunRecord{ID: "r-3", Proof: "Human", ConfirmedBy: "anna", Steps: []wire.StepRecord{
		{Step: "PowerOff"}, {Step: "DeleteNode"}, {Step: "PowerOn"}, {Step: "PowerOff"}, {Step: "DeleteNode"}}}
	n.AddCourse(&confirmed)
	assert.Equal(t, []string{"confirmed off by anna"}, confirmed.Steps[3].Course)
	assert.Empty(t, confirmed.Steps[0].Course, "how the attempt before was proven is not known any more")
}

// What is kept is limited, of one run and of all.
func TestCoursesAreLimited(t *testing.T) {
	n := New()
	for i := range 2 * deedsOfOne {
		n.Observe(event.Event{Type: event.Waited, Run: "r", Message: fmt.Sprint(i)})
	}
	assert.Len(t, n.deeds["r"], deedsOfOne)
	for i := range 2 * noteTargets {
		n.Observe(event.Event{Type: event.Waited, Run: fmt.Sprintf("s-%05d", i)})
	}
	assert.Len(t, n.deeds, noteTargets)
	assert.Contains(t, n.deeds, fmt.Sprintf("s-%05d", 2*noteTargets-1), "the newest stay")
}
