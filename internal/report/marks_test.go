package report

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

// writesTo counts the writes of marks to a kind of object.
func (b *board) writesTo(kind string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.wrote {
		if m.Kind == kind {
			n++
		}
	}
	return n
}

// removeMark removes a mark as its object goes.
func (b *board) removeMark(kind, uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.marks, func(k markKey, _ event.RunMark) bool { return k.kind == kind && k.uid == uid })
}

// both is what the marks on the Node and the Machine say.
func (b *board) both() []string { return []string{b.step("Node"), b.step("Machine")} }

func TestMarksFollowTheRun(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.begin("r", powerCycle())
		assert.Equal(t, []string{"r PowerOff", "r PowerOff"}, d.both(), "at once")
		for _, m := range d.Marked() {
			assert.Equal(t, "f-1", m.Instance)
		}
		time.Sleep(time.Minute)
		d.enter("r", remediate.DeleteNode)
		assert.Equal(t, []string{"r PowerOff", "r DeleteNode"}, d.both(), "the Node is being saved and deleted")
		d.change(func(d *desk) { d.nodeUID = "" }) // its mark may still be in the view
		d.enter("r", remediate.PowerOn, isolated)
		time.Sleep(time.Minute)
		d.enter("r", remediate.AwaitNode)
		d.change(func(d *desk) { d.nodeUID = "node-2" })
		time.Sleep(time.Minute)
		assert.Equal(t, 1, d.writesTo("Node"), "a new Node is restored before it is marked")
		d.enter("r", remediate.RestoreNode, func(r *remediate.Run) { r.NewNodeUID = "node-2" })
		require.Equal(t, 1, d.writesTo("Node"))
		time.Sleep(time.Minute)
		d.removeMark("Node", "node-1")
		assert.Equal(t, []event.RunMark{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-2", Run: "r", Step: "RestoreNode", Instance: "f-1"}}, d.written()[len(d.written())-1:])
		d.enter("r", remediate.Done)
		assert.Equal(t, []string{"", ""}, d.both())
	})
}

// A mark on the Node is written only while it disturbs nothing: not between its backup and
// its isolation, and not while it is restored.
func TestWhenANodeMayBeMarked(t *testing.T) {
	began := time.Now()
	at := func(s remediate.Step, changes ...func(*remediate.Run)) remediate.Run {
		r := powerCycle()
		r.Step, r.StepStarted = s, began
		for _, change := range changes {
			change(&r)
		}
		return r
	}
	tainted := func(r *remediate.Run) { r.Isolation = remediate.IsolateTaint }
	restored := func(r *remediate.Run) {
		r.Intent = remediate.Intent{Action: remediate.RestoreTargetNode, At: began.Add(5 * time.Second)}
	}
	for _, c := range []struct {
		run   remediate.Run
		after time.Duration
		may   bool
	}{
		{at(remediate.PowerOff), 0, true},
		{at(remediate.PowerOff), markWindow - 1, true},
		{at(remediate.PowerOff), markWindow, false},
		{at(remediate.PowerOff, func(r *remediate.Run) { r.Confirmed = &remediate.Order{} }), 0, false},
		{at(remediate.DeleteNode), time.Hour, false},
		{at(remediate.DeleteNode, tainted), 0, false},
		{at(remediate.PowerOn), 0, true},
		{at(remediate.AwaitNode), time.Hour, false},
		{at(remediate.AwaitNode, tainted), 0, true},
		{at(remediate.RestoreNode), markPatience - 1, false},
		{at(remediate.RestoreNode), markPatience, true},
		{at(remediate.RestoreNode, restored), 5*time.Second + markPause - 1, false},
		{at(remediate.RestoreNode, restored), 5*time.Second + markPause, true},
		{at(remediate.Held), 0, true},
		{at(remediate.Waiting), 0, true},
	} {
		may, until := nodeMayChange(&c.run, 3*time.Second, began.Add(c.after))
		assert.Equal(t, c.may, may, "%s after %s", c.run.Step, c.after)
		assert.Equal(t, c.run.Step == remediate.PowerOff, !until.IsZero(), c.run.Step)
	}
	first := at(remediate.PowerOff)
	may, _ := nodeMayChange(&first, 3*time.Second-1, began)
	assert.False(t, may, "the mark might be written after the second reading that proves an Off")

	openShift, other := objectsOf(target)[Machine], objectsOf(target)[Machine]
	other.APIVersion = "cluster.x-k8s.io/v1beta1"
	run := at(remediate.Reprovision)
	assert.True(t, machineMayChange(&run, openShift, began.Add(deletionTime)))
	assert.False(t, machineMayChange(&run, openShift, began.Add(deletionTime-1)), "most are deleted by then")
	assert.False(t, machineMayChange(&run, other, began.Add(time.Hour)), "it is handed over as it was read")
	run.Step = remediate.AwaitNode
	assert.True(t, machineMayChange(&run, other, began))
}

// An API server that is slow when many runs begin: no Node is marked too late.
func TestSlowMarks(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.set(900*time.Millisecond, nil)
		d.change(func(d *desk) { d.machine = false })
		began := time.Now()
		for i := range 20 {
			r := powerCycle()
			r.Target.Node = fmt.Sprintf("n-%d", i)
			d.change(func(d *desk) { id := fmt.Sprint("r-", i); r.ID = id; d.runs[id] = remediate.Begin(r, began) })
		}
		d.emit(event.Event{Type: event.Started, Run: "r-0"})
		time.Sleep(time.Minute)
		assert.NotEmpty(t, d.written())
		assert.Less(t, len(d.written()), 20)
		assert.Empty(t, d.emitted(t, event.Failed))
	})
	atDesk(t, func(t *testing.T, d *desk) {
		d.set(time.Hour, nil)
		d.begin("r", powerCycle())
		time.Sleep(time.Minute)
		assert.Empty(t, d.written())
	})
}

// What belongs to no open run goes, whoever left it behind; and only while this instance
// acts on the cluster.
func TestMarksLeftBehind(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.change(func(d *desk) { d.state.Acts = false })
		of := func(kind, name, run string) event.RunMark {
			return event.RunMark{APIVersion: "v1", Kind: kind, Name: name, UID: "u", Run: run, Instance: "f-0"}
		}
		for _, m := range []event.RunMark{of("Node", "x", "gone"), of("Machine", "y", "gone"), of("Node", "z", "")} {
			d.marks[keyOf(m)] = m
		}
		time.Sleep(time.Minute)
		require.Len(t, d.Marked(), 3, "another instance acts")
		d.change(func(d *desk) { d.state.Acts = true })
		time.Sleep(2 * marksEvery)
		assert.Empty(t, d.Marked())
		n := len(d.written())
		time.Sleep(time.Hour)
		assert.Len(t, d.written(), n, "nothing is left to do")
	})
	atDesk(t, func(t *testing.T, d *desk) { // the one of before, of the same Node
		m := event.RunMark{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-1", Run: "before", Step: "AwaitNode", Instance: "f-0"}
		r := powerCycle()
		r.ID = "r"
		r = remediate.Begin(r, time.Now().Add(-time.Minute))
		d.change(func(d *desk) { d.marks[keyOf(m)] = m; d.runs["r"] = r })
		time.Sleep(time.Minute)
		assert.Equal(t, "before AwaitNode", d.step("Node"), "it stays while its Node must not change")
		d.enter("r", remediate.Held)
		assert.Equal(t, "r Held", d.step("Node"))
	})
}

// A mark that cannot be written is tried again with a back-off, and that is reported once.
func TestMarkThatIsRefused(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.set(0, errForbidden)
		d.begin("r", powerCycle())
		d.enter("r", remediate.Held)
		time.Sleep(10 * time.Minute)
		assert.LessOrEqual(t, d.writesTo("Machine"), 10)
		assert.GreaterOrEqual(t, d.writesTo("Machine"), 3)
		assert.Len(t, d.emitted(t, event.Failed), 2, "for each kind of object")
		d.set(0, nil)
		time.Sleep(2 * markRetryMax)
		assert.Equal(t, []string{"r Held", "r Held"}, d.both())
	})
}

// A right that is missing at one kind of object is reported once, although the other is
// written in between.
func TestMarkThatIsRefusedAtMachines(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.set(0, errForbidden)
		d.board.mu.Lock()
		d.only = "Machine"
		d.board.mu.Unlock()
		d.begin("r", powerCycle())
		for range 20 {
			time.Sleep(time.Minute)
			d.enter("r", remediate.Waiting)
			time.Sleep(time.Minute)
			d.enter("r", remediate.PowerOff)
		}
		assert.Greater(t, d.writesTo("Node"), 10)
		assert.Greater(t, d.writesTo("Machine"), 3)
		assert.Len(t, d.emitted(t, event.Failed), 1)
	})
}

// Of another Machine or Node than the run's, no mark is written.
func TestMarkOfWhatIsGone(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.change(func(d *desk) { d.machine, d.nodeUID = false, "" })
		d.begin("r", powerCycle())
		time.Sleep(time.Minute)
		assert.Empty(t, d.written())
	})
}

func (d *desk) emitted(t *testing.T, typ string) (list []event.Event) {
	t.Helper()
	synctest.Wait()
	all := must.Do(d.events.After(t.Context(), 0))(t)
	for _, e := range all {
		if e.Type == typ {
			list = append(list, e)
		}
	}
	return list
}

// Nothing is written to a cluster that was removed: no mark, and no Event, not even one of which it
// was not told before. A cluster that is added later is reported like the others.
func TestReportedClustersComeAndGo(t *testing.T) {
	atDesk(t, func(t *testing.T, d *desk) {
		d.begin("r", powerCycle())
		time.Sleep(time.Minute)
		marks, notes := len(d.written()), len(d.noted())
		require.NotZero(t, marks)
		require.NotZero(t, notes)
		d.report.Detach(clusterName)
		d.enter("r", remediate.Held)
		time.Sleep(time.Minute)
		assert.Len(t, d.written(), marks)
		assert.Len(t, d.noted(), notes)

		d.report.Attach(clusterName, d.board)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"r Held", "r Held"}, d.both())
		d.enter("r", remediate.PowerOff)
		assert.Greater(t, len(d.noted()), notes)
	})
}
