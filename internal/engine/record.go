package engine

import (
	"sync"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
)

// recorder remembers about which Nodes nothing could be recorded, and why: it is
// told once, and explained.
type recorder struct {
	mu     sync.Mutex
	failed map[string]string
}

// note keeps how the last record about a Node went, and says whether it is the first
// to fail.
func (r *recorder) note(node string, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.failed, node)
		return false
	}
	_, known := r.failed[node]
	r.failed[node] = err.Error()
	return !known
}

// auditGate is a gate for a Node about which nothing could be recorded when that was
// last tried; none otherwise. // L4
func (c *cluster) auditGate(node string) []reason.Gate {
	r := c.e.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	why, failed := r.failed[c.opt.Name+"/"+node]
	if !failed {
		return nil
	}
	return []reason.Gate{{Name: "audit", Reason: reason.AuditFailed, Value: why, Threshold: "a durable record", Source: "audit log"}}
}

// recorded makes an event durable before what it announces is done, and gives it to
// be told of. On an error nothing that hurts may be done. // I24
func (c *cluster) recorded(ev event.Event) (event.Event, error) {
	if c.e.opt.Record == nil {
		return ev, nil
	}
	ev.Cluster, ev.Recorded = c.opt.Name, true
	err := c.e.opt.Record(ev)
	if c.e.recorder.note(c.opt.Name+"/"+ev.Node, err) {
		c.emit(event.Event{
			Type: event.Failed, Node: ev.Node, Run: ev.Run, Step: ev.Step, Action: ev.Action, Reason: reason.AuditFailed,
			Message: "record it before it is done; nothing that hurts is done until that works: " + err.Error(),
		})
	}
	return ev, err
}
