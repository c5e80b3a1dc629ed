package report

import (
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	// markTime is how long the writing of a mark takes at most.
	markTime = 2 * time.Second
	// markWindow is how long after the beginning of step 1 its Node may be marked. The two
	// readings that prove an Off are further apart than it takes to write a mark then, so the
	// Node does not change between its backup and its isolation.
	markWindow = time.Second
	// markPause is how long after step 5 has written to the Node it may be marked, and
	// markPatience how long after the beginning of the step if there was nothing to write.
	markPause    = 3 * time.Second
	markPatience = 10 * time.Second
	// deletionTime is how long a Machine that step 6 deletes is not marked, and its Node. Most are
	// gone by then, and many deletions at once do not wait for marks.
	deletionTime = 10 * time.Second
)

// wanted returns the marks that the objects of open runs are to carry and that may be written
// now. The present marks on all objects of open runs stay, as long as they are not replaced:
// busy names these objects.
func (m *marker) wanted(runs []remediate.Run, now time.Time) (want map[markKey]dueMark, busy map[objectName]bool) {
	want, busy = map[markKey]dueMark{}, map[objectName]bool{}
	for i := range runs {
		r := &runs[i]
		mark := event.RunMark{Run: r.ID, Step: string(r.Step), Instance: m.r.opt.Instance}
		add := func(o object, until time.Time) {
			mark.APIVersion, mark.Kind, mark.Namespace, mark.Name, mark.UID = o.APIVersion, o.Kind, o.Namespace, o.Name, o.UID
			want[keyOf(mark)] = dueMark{mark, until}
		}
		of := objectsOf(r.Target)
		nodeUID, machineExists := m.r.opt.Present(m.name, r.Target)
		if node, has := of[Node]; has {
			busy[nameOfObject(node)] = true
			if may, until := nodeMayChange(r, m.r.opt.OffReadSpacing, now); may && nodeUID != "" {
				node.UID = nodeUID
				add(node, until)
			}
		}
		if machine, has := of[Machine]; has {
			busy[nameOfObject(machine)] = true
			if machineExists && machineMayChange(r, machine, now) {
				add(machine, time.Time{})
			}
		}
	}
	return want, busy
}

// objectName is the name of an object, whichever has it.
type objectName struct{ kind, namespace, name string }

func nameOfObject(o object) objectName { return objectName{o.Kind, o.Namespace, o.Name} }

// nodeMayChange says whether a mark on the Node is in the way of nothing that the run does,
// and until when; zero: for longer than the writing takes. spacing is the time between the two
// readings that prove an Off.
func nodeMayChange(r *remediate.Run, spacing time.Duration, now time.Time) (may bool, until time.Time) {
	switch r.Step {
	case remediate.PowerOff:
		until = r.StepStarted.Add(markWindow)
		return now.Before(until) && markWindow+markTime <= spacing && r.Confirmed == nil, until // a confirmation may take the place of the readings
	case remediate.DeleteNode: // it is saved, and deleted as it was saved
		return false, time.Time{}
	case remediate.AwaitNode: // a new Node is restored as soon as it registers
		return r.Isolation == remediate.IsolateTaint, time.Time{}
	case remediate.RestoreNode:
		if r.Intent.Action == remediate.RestoreTargetNode {
			return now.Sub(r.Intent.At) >= markPause, time.Time{}
		}
		return now.Sub(r.StepStarted) >= markPatience, time.Time{}
	case remediate.Reprovision:
		return now.Sub(r.StepStarted) >= deletionTime, time.Time{}
	}
	return true, time.Time{}
}

// machineMayChange is nodeMayChange for the Machine. Step 6 hands a Machine of the Cluster API
// over with a write that fails if the Machine has changed since it was read.
func machineMayChange(r *remediate.Run, machine object, now time.Time) bool {
	return r.Step != remediate.Reprovision || isOpenShift(machine) && now.Sub(r.StepStarted) >= deletionTime
}
