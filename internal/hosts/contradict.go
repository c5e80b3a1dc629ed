package hosts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// doubtAge is how long a Node must live on after the first Off: one that died in
// this very second is Ready for 40 s more.
const doubtAge = time.Minute

// doubts are the devices that read Off while their Node was Ready, since when. They
// are not kept over a restart: the device is read again.
type doubts struct {
	mu    sync.Mutex
	since map[string]doubt // by host and device
}

type doubt struct {
	at    time.Time
	lease string // resourceVersion of the kubelet's Lease then
}

// note gives the first of an unbroken row of doubts about a device, this one included.
func (s *doubts) note(key string, now doubt) doubt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since == nil {
		s.since = map[string]doubt{}
	}
	first, ok := s.since[key]
	if !ok {
		s.since[key], first = now, now
	}
	return first
}

func (s *doubts) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, key)
}

// contradict ends an enrolment that a device disproves: it tells no identity, and
// reads Off while the Node that it is said to switch lives on. It is another outlet
// now, or none: its Off would be a false proof. // I1, I8
func (c *Cluster) contradict(ctx context.Context, k Checked, d bmc.Device) {
	h := k.Subject.Host
	key := h.Name + "\n" + d.Key()
	switch {
	case d.Identifies(), k.Subject.Healthy && k.Reading.State == bmc.Unknown:
		return // a reading that failed neither proves nor disproves
	case !k.Subject.Healthy, k.Reading.State == bmc.On:
		c.hosts.pins.doubts.drop(key)
		return
	}
	p, found, err := c.hosts.pins.get(h.Name)
	if err != nil || !found || p.EnrolledBy == "" || !pinnedHere(p, h) {
		c.hosts.pins.doubts.drop(key)
		return
	}
	lease, alive := c.alive(ctx, k.Subject.Node, p.SystemUUID)
	if !alive {
		c.hosts.pins.doubts.drop(key)
		return
	}
	now := doubt{at: k.At, lease: lease}
	if first := c.hosts.pins.doubts.note(key, now); now.at.Sub(first.at) >= doubtAge && now.lease != first.lease {
		c.revoke(ctx, p, k.Subject.Node, fmt.Sprintf("%s read Off while Node %s was Ready; enroll again after checking the outlet", d, k.Subject.Node))
	}
}

// Distrust ends the enrolment of a host whose outlets were contradicted in a run, so
// that the next run does not cut them again. Who enrolled since has seen to them. // I8
func (c *Cluster) Distrust(ctx context.Context, r remediate.Run) {
	if len(r.Contradicted) == 0 {
		return
	}
	at := r.Contradicted[0]
	p, found, err := c.hosts.pins.get(r.Target.Host)
	if err != nil || !found || p.EnrolledBy == "" || p.At.After(at.Since) {
		return
	}
	c.revoke(ctx, p, r.Target.Node, fmt.Sprintf("power level %d read Off while a lower one read On; enroll again after checking the outlets", at.Level+1))
}

// alive looks past every cache whether the Node of a machine is Ready, and gives the
// version of its kubelet's Lease.
func (c *Cluster) alive(ctx context.Context, node, systemUUID string) (lease string, alive bool) {
	t, known := c.opt.View.TargetOn(node)
	if !known {
		return "", false
	}
	return c.opt.View.Alive(ctx, t, systemUUID)
}

// revoke ends an enrolment durably and tells of it. What another goroutine has just
// written stands: the next health check tries again.
func (c *Cluster) revoke(ctx context.Context, p state.Pin, node, why string) {
	p.EnrolledBy, p.Revoked, p.At = "", why, time.Now().UTC()
	switch _, err := c.putPin(ctx, p); {
	case errors.Is(err, state.ErrConflict), errors.Is(err, state.ErrExists), err != nil && ctx.Err() != nil:
		return
	case err != nil:
		c.emit(event.Event{Type: event.Failed, Node: node, Message: "end the enrolment: " + err.Error()})
		return
	}
	c.emit(event.Event{Type: event.Refused, Node: node, Reason: reason.NotEnrolled, Message: why})
	c.opt.View.Wake()
}
