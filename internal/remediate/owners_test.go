package remediate

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// worn is what the search knows of the one label that it saves, on the present Node.
type worn struct {
	answer bool // the answer to the last restore showed it; a crash loses that
	took   bool // its owner took it off
	fought bool // and fenced put it back, which had read it back
}

var wornKeys = []string{"label"}

// restoredOn says whether the record has the label as read back on a Node.
func restoredOn(r Run, node int8) bool { return node != 0 && r.Restored[wornKeys[0]] == uid(node) }

// lookAtLabels is what a look says about the saved label.
func (w *world) lookAtLabels(r Run, s *Observation) {
	s.Restored = Ask(w.labels || restoredOn(r, w.uid))
	if w.labels && !restoredOn(r, w.uid) || w.worn.answer {
		s.ReadBack = wornKeys
	}
}

// putLabels restores the label, unless the record has it as its owner's.
func (w *world) putLabels(r Run) {
	if !restoredOn(r, w.uid) {
		w.worn.fought = w.worn.took && w.worn.answer && !w.labels
		w.labels = true
	}
	w.worn.answer = w.worn.answer || w.labels
}

// owners are the searches in which the owner of a label takes it off after it was restored.
var owners = []variant{
	{name: "a label is taken off", states: 40_000, faults: join(engine, []fault{takenOff, lostAPI, foreignOff, slowLook}), budget: 3, want: "Done"},
	{name: "a label is taken off, taint", states: 18_000, isolation: IsolateTaint, faults: join(crashes, []fault{takenOff, lostAPI, actFails, answerLost, replaced}), budget: 3, want: "Done"},
}

var ownerMutants = []mutant{
	{"forgets what was read back", "I21: a label that its owner took off", variant{name: "m", faults: []fault{takenOff}, budget: 2}, saying(func(_ Run, _ Observation, r2 *Run, _ *Action, _ time.Time) {
		r2.Restored = nil
	})},
	{"does not hear what a restore was answered", "I21: a label that its owner took off", variant{name: "m", faults: []fault{takenOff}, budget: 1}, seeing(func(_ Run, s *Observation, _ time.Time) {
		s.ReadBack = nil
	})},
	{"takes what it wrote for read back", "Done : the labels are not back", variant{name: "m", faults: []fault{actFails}, budget: 1}, saying(func(_ Run, s Observation, r2 *Run, a *Action, _ time.Time) {
		if *a == RestoreTargetNode {
			r2.Restored = map[string]string{wornKeys[0]: s.Node.UID}
		}
	})},
}

// Only what was read back on the Node of step 5 is noted, for that Node; and the record stays small. // I21
func TestReadBackIsNotedForItsNode(t *testing.T) {
	was := map[string]string{"label a": "u1", "label b": "u1"}
	note := func(change func(r *Run, s *Observation)) map[string]string {
		r, s := begin(RestoreNode, sec)
		s.Restored, s.ReadBack, r.Restored = No, []string{"label a", "cordon"}, maps.Clone(was)
		change(&r, &s)
		got, _, _ := Next(r, s, noon)
		assert.Equal(t, was, r.Restored, "the caller's record")
		return got.Restored
	}
	assert.Equal(t, map[string]string{"label a": "u2", "label b": "u1", "cordon": "u2"}, note(func(*Run, *Observation) {}))
	assert.Equal(t, was, note(func(_ *Run, s *Observation) { s.Node.UID = "u3" }), "the new Node went away")
	assert.Equal(t, was, note(func(_ *Run, s *Observation) { s.Node.SystemUUID = "of another" }))
	assert.Equal(t, was, note(func(_ *Run, s *Observation) { s.Node = Node{} }), "it was not read")
	assert.Equal(t, was, note(func(r *Run, s *Observation) { r.Target.ClusterUID, s.ClusterUID = "c1", "c2" }))
	assert.Equal(t, was, note(func(r *Run, _ *Observation) { r.Step = AwaitNode }))
	many := note(func(_ *Run, s *Observation) {
		for i := range 2 * maxRestored {
			s.ReadBack = append(s.ReadBack, fmt.Sprint("label ", i))
		}
	})
	assert.Len(t, many, maxRestored)
	assert.Equal(t, "u2", many["label a"])
	assert.Nil(t, note(func(_ *Run, s *Observation) { s.Restored = Yes }), "the history stays small")
}

// A saved key that its owner took off before the next look costs a look, and no write. // I21
func TestOwnerIsFasterThanTheNextLook(t *testing.T) {
	const key = "taint a:NoExecute"
	r, s := begin(RestoreNode, sec)
	s.Restored = No
	r, action, _ := Next(r, s, noon)
	assert.Equal(t, RestoreTargetNode, action)
	s.ReadBack = []string{key} // as the write was answered
	var actions []Action
	for now := noon.Add(sec / 2); r.Open() && now.Before(noon.Add(minute)); now = now.Add(sec / 2) {
		s.Restored = Ask(r.Restored[key] == "u2")
		r, action, _ = Next(r, s, now)
		actions = append(actions, action)
	}
	assert.NotContains(t, actions, RestoreTargetNode)
	assert.Equal(t, Done, r.Step)
}
