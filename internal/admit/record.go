package admit

import (
	"cmp"
	"context"
	"sync"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// recorder holds the Nodes whose last record in the audit log failed, and why. The failure
// is reported once, and shown by explain.
type recorder struct {
	mu     sync.Mutex
	failed map[string]string
	told   event.ToldOf[string, bool]
}

// update stores the result of the last record about a Node, and says whether it is the first
// failure.
func (r *recorder) update(node string, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.failed, node); err != nil {
		r.failed[node] = err.Error()
	}
	return r.told.News(node, err != nil)
}

// gates returns a failing gate for a Node whose last record failed, else nil. // L4
func (r *recorder) gates(node string) []reason.Gate {
	r.mu.Lock()
	why, failed := r.failed[node]
	r.mu.Unlock()
	if !failed {
		return nil
	}
	return []reason.Gate{{Name: "audit", Reason: reason.AuditFailed, Value: why, Threshold: "a durable record", Source: "audit log"}}
}

// Record implements run.Cluster: it makes an event durable before the action that it
// announces, and returns it for the stream of events. After an error nothing destructive may
// be done. // I24
func (rc *runCluster) Record(ev event.Event) (event.Event, error) {
	if rc.opt.Record == nil {
		return ev, nil
	}
	ev.Cluster, ev.Recorded = rc.opt.Name, true
	err := rc.opt.Record(ev)
	if rc.recorder.update(cmp.Or(ev.Node, ev.Machine), err) {
		rc.opt.Emit(event.Event{
			Type: event.Failed, Cluster: rc.opt.Name, Node: ev.Node, Machine: ev.Machine, Run: ev.Run, Step: ev.Step, Action: ev.Action, Reason: reason.AuditFailed,
			Message: "record the action in the audit log before it is done; fenced does nothing destructive until that works: " + err.Error(),
		})
	}
	return ev, err
}

// Save implements run.Cluster: it stores a run by compare-and-set, and then puts it into the
// Model. // I19
func (rc *runCluster) Save(ctx context.Context, r remediate.Run) (remediate.Run, error) {
	before, _ := rc.opt.Model.Runs.Get(r.ID)
	if hosts.IsFalseOff(r) && !hosts.IsFalseOff(before) {
		if err := rc.opt.Hosts.Freeze(ctx, r); err != nil {
			return r, err
		}
	}
	saved, err := state.SaveRun(ctx, rc.opt.Lead.Store(), r)
	if err != nil {
		return r, err
	}
	rc.opt.Model.Runs.Put(saved)
	if before.Version == 0 || before.Step != saved.Step || before.Attempt != saved.Attempt {
		rc.opt.Saved()
	}
	return saved, nil
}

// TellRequests implements run.Cluster.
func (rc *runCluster) TellRequests(ctx context.Context, r remediate.Run) {
	rc.opt.TellRequests(ctx, r.ID)
}

// Show implements run.Cluster.
func (rc *runCluster) Show(r remediate.Run) { rc.opt.Model.Runs.Put(r) }
