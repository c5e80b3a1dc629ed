package report

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

const (
	// marksEvery is how often marks are compared with the open runs, beside each change.
	marksEvery = 2 * time.Second
	// marksPerTurn is how many marks of a cluster are written after one comparison, and
	// marksAtOnce how many of them at the same time.
	marksPerTurn = 32
	marksAtOnce  = 4
	markRetry    = 10 * time.Second // after a mark that could not be written, doubled each time
	markRetryMax = 5 * time.Minute
)

// marker keeps the marks of one cluster. It compares what the view shows with the open runs,
// again and again. So a mark that was lost, or left behind by whichever instance, is found.
type marker struct {
	r       *Report
	name    string
	c       Cluster
	changed chan struct{} // a run began or entered a step
	retry   map[markKey]times.Backoff
	failed  event.ToldOf[string, bool] // whether the last write to a kind of object failed
}

// markKey identifies an object with a mark.
type markKey struct{ apiVersion, kind, namespace, name, uid string }

func keyOf(m event.RunMark) markKey { return markKey{m.APIVersion, m.Kind, m.Namespace, m.Name, m.UID} }

// dueMark is a mark to write until a time; zero: at any time.
type dueMark struct {
	event.RunMark
	until time.Time
}

// wake makes the marker compare now.
func (m *marker) wake() { live.Signal(m.changed) }

func (m *marker) run(ctx context.Context) error {
	live.Every(ctx, marksEvery, m.changed, func() {
		if s := m.r.opt.State(m.name); s.Acts { // of several instances, the owner marks
			m.write(ctx, m.due(s, time.Now()))
		}
		live.Sleep(ctx, gather)
	})
	return nil
}

// due lists the marks to write or to remove now, the urgent ones first.
func (m *marker) due(s State, now time.Time) []dueMark {
	want, busy := m.wanted(s.Runs, now)
	var list []dueMark
	for _, seen := range m.c.Marked() {
		key := keyOf(seen)
		switch w, wanted := want[key]; {
		case wanted && w.RunMark == seen:
			delete(want, key)
		case !wanted && !busy[objectName{seen.Kind, seen.Namespace, seen.Name}]: // of no open run
			seen.Run, seen.Step, seen.Instance = "", "", ""
			list = append(list, dueMark{RunMark: seen})
		}
	}
	list = append(list, slices.Collect(maps.Values(want))...)
	known := map[markKey]bool{}
	list = slices.DeleteFunc(list, func(d dueMark) bool {
		known[keyOf(d.RunMark)] = true
		return now.Before(m.retry[keyOf(d.RunMark)].Next)
	})
	maps.DeleteFunc(m.retry, func(k markKey, _ times.Backoff) bool { return !known[k] })
	slices.SortFunc(list, func(a, b dueMark) int {
		urgent := func(d dueMark) int {
			if d.until.IsZero() {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(urgent(a), urgent(b)), cmp.Compare(a.Kind+a.Namespace+a.Name, b.Kind+b.Namespace+b.Name))
	})
	return list[:min(len(list), marksPerTurn)]
}

// write writes marks, and returns when all of them are written or have failed.
func (m *marker) write(ctx context.Context, list []dueMark) {
	errs := make([]error, len(list))
	var g errgroup.Group
	g.SetLimit(marksAtOnce)
	for i, d := range list {
		g.Go(func() error {
			ctx := ctx
			if !d.until.IsZero() {
				if !time.Now().Before(d.until) { // it waited for others
					return nil
				}
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, d.until.Add(markTime))
				defer cancel()
			}
			errs[i] = m.c.Mark(ctx, d.RunMark)
			return nil
		})
	}
	_ = g.Wait() // errs has the errors
	for i, err := range errs {
		if ctx.Err() == nil {
			m.note(list[i].RunMark, err)
		}
	}
}

// note remembers the result of a write. Of several failures at one kind of object, the first is
// reported: one right may be missing.
func (m *marker) note(mark event.RunMark, err error) {
	key := keyOf(mark)
	news := m.failed.News(mark.Kind, err != nil)
	if err == nil {
		delete(m.retry, key)
		return
	}
	m.retry[key] = m.retry[key].After(time.Now(), markRetry, markRetryMax)
	if news {
		m.r.opt.Events.Emit(event.Event{Type: event.Failed, Cluster: m.name,
			Message: "mark what is being remediated, which delays no fencing and is tried again: " + err.Error()})
	}
}

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

// nodeMayChange reports whether a mark on the Node is in the way of nothing that the run does,
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
