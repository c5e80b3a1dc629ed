package admit

import (
	"sync"
	"time"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

const (
	ownHostEvery = 5 * time.Second  // between two looks at the own host
	ownHostFresh = 15 * time.Second // how long a candidate counts after it was considered
	// ownHostWell is how long the own host must be healthy before this instance may own the
	// cluster again. So it does not pass the cluster on more often than that.
	ownHostWell = 5 * time.Minute
	// ownHostPatience is how long an owner waits for runs that switch a host off, or delete a
	// Node or a Machine, before it releases the cluster.
	ownHostPatience = 2 * time.Minute
)

// OwnHost is what is known about the host of this instance. While a check wants it remediated,
// this instance leaves the cluster to the others: only one on another host may do that. // I13
type OwnHost struct {
	opt Options

	mu     sync.Mutex
	why    string           // it is sick; "" if it is not
	target remediate.Target // the host
	wanted time.Time        // when only this instance was last seen to keep it from being remediated
	since  time.Time        // since when that is so
	sick   time.Time        // when it was last seen sick
	asked  bool             // this instance leaves the cluster to the others
	next   time.Time        // of the next look
}

// record records a candidate that is this host, and that only this keeps from being
// remediated. gates are evaluated without a probe. // I13
func (o *OwnHost) record(a cluster.Candidate, gates []reason.Gate, now time.Time) {
	why := ""
	for _, g := range gates {
		switch {
		case g.Pass:
		case g.Reason == reason.OwnHost:
			why = g.Value
		case g.Reason == reason.NotOwner && !o.opt.Lead.Leads(): // a standby does not become the owner
		default:
			return
		}
	}
	if why != "" {
		o.setSick(a.Draft.Target, a.Draft.Trigger+", and it is the host of this instance: "+why, now)
	}
}

func (o *OwnHost) setSick(t remediate.Target, why string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why == "" {
		o.why, o.target, o.next = why, t, time.Time{}
	}
	if now.Sub(o.wanted) > ownHostFresh {
		o.since = now
	}
	o.sick, o.wanted = now, now
}

// check leaves the cluster to the others while the host is sick. Only the deciding goroutine
// calls it.
func (o *OwnHost) check(now time.Time) {
	o.mu.Lock()
	due, known, asked, target := !now.Before(o.next), o.why != "", o.asked, o.target
	if due {
		o.next = now.Add(ownHostEvery)
	}
	o.mu.Unlock()
	if !due {
		return
	}
	if !known && !o.opt.Lead.Leads() {
		o.findRun(now)
	}
	o.stepAside(known && o.isSick(target, now), known && !asked && o.anyInLastMoment(), now)
}

// findRun records a run by another instance that is open on the host of this one: this instance
// could not continue it as the owner.
func (o *OwnHost) findRun(now time.Time) {
	for _, r := range o.opt.Model.Runs.Open() {
		if code, why := o.opt.Hosts.OffLimits(r); code == reason.OwnHost {
			o.setSick(r.Target, "run "+r.ID+" is open on it: "+why, now)
			return
		}
	}
}

// isSick says whether a host is not known to be healthy.
func (o *OwnHost) isSick(t remediate.Target, now time.Time) bool {
	if !o.opt.Model.Objects.Seen() {
		return true
	}
	for _, r := range o.opt.Model.Runs.Open() {
		if r.Target.Overlaps(t) {
			return true
		}
	}
	if t.Node == "" {
		return false // the candidate is recorded again while it is sick
	}
	report := o.opt.Model.Objects.NodeReport(t.Node, now)
	switch verdictOn(&report, t.Node) {
	case "", policy.Healthy, policy.Skipped:
		return false
	}
	return true
}

// stepAside tells the store whether this instance leaves the cluster to the others, and reports a
// change. sick: the host is sick still. busy: runs are in a moment in which they should not change
// their owner.
func (o *OwnHost) stepAside(sick, busy bool, now time.Time) {
	o.mu.Lock()
	if sick {
		o.sick = now
	}
	why, target, asked := o.why, o.target, o.asked
	begin := why != "" && !asked && now.Sub(o.wanted) <= ownHostFresh && (!busy || now.Sub(o.since) >= ownHostPatience)
	end := why != "" && now.Sub(o.sick) >= ownHostWell
	if end {
		o.why, o.asked = "", false
	}
	o.mu.Unlock()
	switch {
	case end && asked:
		o.opt.Lead.StepAside(false)
		o.emit("the host of this instance has been healthy for "+ownHostWell.String()+": this instance may own the cluster again", target)
	case begin && !end && o.opt.Lead.StepAside(true):
		o.mu.Lock()
		o.asked = true
		o.mu.Unlock()
		o.emit("this instance leaves the cluster to the others: "+why+"; "+o.opt.Lead.Next(), target)
	}
}

// anyInLastMoment says whether this instance leads a run that switches a host off, or deletes a
// Node or a Machine. It should not have to begin again at the next owner.
func (o *OwnHost) anyInLastMoment() bool {
	if !o.opt.Lead.Leads() {
		return false
	}
	for _, r := range o.opt.Model.Runs.Open() {
		switch r.Step {
		case remediate.PowerOff, remediate.DeleteNode, remediate.Reprovision:
			return true
		}
	}
	return false
}

// Aside returns why this instance leaves the cluster to the others, and to whom. It is "" if it
// does not.
func (o *OwnHost) Aside() string {
	o.mu.Lock()
	why, asked := o.why, o.asked
	o.mu.Unlock()
	if why == "" || !asked {
		return ""
	}
	return why + "; " + o.opt.Lead.Next()
}

func (o *OwnHost) emit(message string, t remediate.Target) {
	o.opt.Emit(event.Event{Type: event.OwnerChanged, Cluster: o.opt.Name, Node: t.Node, Reason: reason.OwnHost, Message: message})
}
