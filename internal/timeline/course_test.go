package timeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

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
