package admit

import (
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	ownHostEvery = 5 * time.Second // between two looks at the own host
	// ownHostWell is how long the own host must be healthy before this instance may own the
	// cluster again. So it does not pass the cluster on more often than that.
	ownHostWell = 5 * time.Minute
	// ownHostPatience is how long an owner waits for runs that switch a host off, or delete a
	// Node or a Machine, before it releases the cluster.
	ownHostPatience = 2 * time.Minute
)

// ownHost is what is known about the host of this instance. While a check wants it remediated,
// this instance leaves the cluster to the others: only one on another host may do that. // I13
type ownHost struct {
	mu     sync.Mutex
	why    string           // it is sick; "" if it is not
	target remediate.Target // the host
	since  time.Time        // of why
	wanted time.Time        // when only this instance was last seen to keep it from being remediated
	sick   time.Time        // when it was last seen sick
	asked  bool             // this instance leaves the cluster to the others
	next   time.Time        // of the next look
}

// noteOwnHost notes a candidate that is this host, and that only this keeps from being
// remediated. gates are evaluated without a probe. // I13
func (c *Cluster) noteOwnHost(a candidate, gates []reason.Gate, now time.Time) {
	why := ""
	for _, g := range gates {
		switch {
		case g.Pass:
		case g.Reason == reason.OwnHost:
			why = g.Value
		case g.Reason == reason.NotOwner && !c.opt.Lead.Leads(): // a standby does not become the owner
		default:
			return
		}
	}
	if why != "" {
		c.ownHost.setSick(a.draft.Target, a.draft.Trigger+", and it is the host of this instance: "+why, now)
	}
}

func (o *ownHost) setSick(t remediate.Target, why string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sick, o.wanted = now, now; o.why == "" {
		o.why, o.target, o.since, o.next = why, t, now, time.Time{}
	}
}

// checkOwnHost leaves the cluster to the others while the own host is sick. Only the deciding
// goroutine calls it.
func (c *Cluster) checkOwnHost(now time.Time) {
	o := &c.ownHost
	o.mu.Lock()
	due, known, target := !now.Before(o.next), o.why != "", o.target
	if due {
		o.next = now.Add(ownHostEvery)
	}
	o.mu.Unlock()
	if !due {
		return
	}
	if !known && !c.opt.Lead.Leads() {
		c.findOwnRun(now)
	}
	c.stepAside(known && c.isSick(target, now), c.anyInLastMoment(), now)
}

// findOwnRun notes a run by another instance that is open on the host of this one: this instance
// could not continue it as the owner.
func (c *Cluster) findOwnRun(now time.Time) {
	for _, r := range c.book.OpenRuns() {
		if code, why := c.opt.Hosts.OffLimits(r); code == reason.OwnHost {
			c.ownHost.setSick(r.Target, "run "+r.ID+" is open on it: "+why, now)
			return
		}
	}
}

// isSick says whether a host is not known to be healthy.
func (c *Cluster) isSick(t remediate.Target, now time.Time) bool {
	if !c.book.Seen() {
		return true
	}
	for _, r := range c.book.OpenRuns() {
		if r.Target.Overlaps(t) {
			return true
		}
	}
	if t.Node == "" {
		return false // the candidate is noted again while it is sick
	}
	report := c.book.nodeReport(t.Node, now)
	switch verdictOn(&report, t.Node) {
	case "", policy.Healthy, policy.Skipped:
		return false
	}
	return true
}

// stepAside tells the store whether this instance leaves the cluster to the others, and reports a
// change. sick: the host is sick still. busy: runs are in a moment in which they should not change
// their owner.
func (c *Cluster) stepAside(sick, busy bool, now time.Time) {
	o := &c.ownHost
	o.mu.Lock()
	if sick {
		o.sick = now
	}
	why, target, asked := o.why, o.target, o.asked
	begin := why != "" && !asked && now.Sub(o.wanted) <= 3*ownHostEvery && (!busy || now.Sub(o.since) >= ownHostPatience)
	end := why != "" && now.Sub(o.sick) >= ownHostWell
	if end {
		o.why, o.asked = "", false
	}
	o.mu.Unlock()
	switch {
	case end && asked:
		c.opt.Lead.StepAside(false)
		c.emit(event.Event{Type: event.OwnerChanged, Node: target.Node, Reason: reason.OwnHost,
			Message: "the host of this instance has been healthy for " + ownHostWell.String() + ": this instance may own the cluster again"})
	case begin && !end && c.opt.Lead.StepAside(true):
		o.mu.Lock()
		o.asked = true
		o.mu.Unlock()
		c.emit(event.Event{Type: event.OwnerChanged, Node: target.Node, Reason: reason.OwnHost,
			Message: "this instance leaves the cluster to the others: " + why + "; " + c.opt.Lead.Next()})
	}
}

// anyInLastMoment says whether this instance leads a run that switches a host off, or deletes a
// Node or a Machine. It should not have to begin again at the next owner.
func (c *Cluster) anyInLastMoment() bool {
	if !c.opt.Lead.Leads() {
		return false
	}
	for _, r := range c.book.OpenRuns() {
		switch r.Step {
		case remediate.PowerOff, remediate.DeleteNode, remediate.Reprovision:
			return true
		}
	}
	return false
}

// Aside returns why this instance leaves the cluster to the others, and to whom. It is "" if it
// does not.
func (c *Cluster) Aside() string {
	c.ownHost.mu.Lock()
	why, asked := c.ownHost.why, c.ownHost.asked
	c.ownHost.mu.Unlock()
	if why == "" || !asked {
		return ""
	}
	return why + "; " + c.opt.Lead.Next()
}
