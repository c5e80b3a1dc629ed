package sweep

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
)

const (
	// dependableFailures is how many looks in a row may fail, less one, before a
	// device is called not dependable.
	dependableFailures = 3
	// slowest is the longest pause between looks at a device that keeps failing.
	slowest = 10 * time.Minute

	describeEvery = time.Hour
	describeRetry = 10 * time.Minute // after one that could not be finished
	auditEvery    = 24 * time.Hour
	auditRetry    = time.Hour // after one that could not be finished
	firstAudit    = time.Hour // the first one comes within
	keptLatencies = 20
)

// EventBMC is the type of the events of the sweep. A device that is not
// dependable has a Reason, one that is again has none.
const EventBMC = "BMC"

// entry is one device of the inventory: when it is asked, and what was found.
// Everything is guarded by Sweep.mu.
type entry struct {
	id      deviceID
	service string // bmc.Device.Service
	subject hosts.Subject

	due   time.Time
	place int  // in the heap of what is due later; -1 when it is not there
	asked bool // it is being asked as one that failed last time
	gone  bool // the inventory does not have it any more

	last      answer // the newest look; its At is zero before the first
	failures  int    // in a row
	told      bool   // that it is not dependable
	lastGood  time.Time
	latencies []time.Duration // of the newest good looks, oldest first

	description bmc.Description
	describeErr error        // why the newest one could not be finished
	describeDue time.Time    // at the next look when zero
	describedOf bmc.Identity // who told it

	findings []bmc.Finding // of the newest audit
	audited  time.Time
	auditErr error
	auditDue time.Time
}

func (e *entry) device() bmc.Device { return e.subject.Host.Levels[e.id.level].Devices[e.id.device] }

func (e *entry) suspect() bool { return e.failures > 0 }

// wants is what the next look asks: what changes rarely is asked rarely.
func (e *entry) wants(now time.Time) wish {
	return wish{describe: !now.Before(e.describeDue), audit: !now.Before(e.auditDue)}
}

// pause is how long the device is left alone. One that keeps failing is asked
// less and less often, so that dead ones do not take the slots.
func (e *entry) pause(every time.Duration) time.Duration {
	p := every
	for i := dependableFailures; i < e.failures && p < slowest; i++ {
		p *= 2
	}
	return max(every, min(p, slowest))
}

// record adds a look. It gives the event when the device stops or begins to be
// dependable.
func (e *entry) record(a answer) *event.Event {
	e.last = a
	if why, _ := failure(a); why != "" {
		e.failures++
		if bmc.KindOf(a.Err).RefusesAccount() { // not tried three times to make sure: BMCs lock accounts
			e.failures = max(e.failures, dependableFailures)
		}
		e.describeDue = time.Time{} // it may come back as another
	} else {
		e.good(a)
	}
	if a.audited {
		e.findings, e.auditErr, e.audited, e.auditDue = a.findings, a.auditErr, a.At, a.At.Add(auditEvery)
		if a.auditErr != nil {
			e.auditDue = a.At.Add(auditRetry)
		}
	}
	return e.news()
}

func (e *entry) good(a answer) {
	e.failures, e.lastGood = 0, a.At
	e.latencies = append(e.latencies, a.Latency)
	if n := len(e.latencies); n > keptLatencies {
		e.latencies = slices.Delete(e.latencies, 0, n-keptLatencies)
	}
	switch {
	case a.described:
		e.describeErr, e.describeDue, e.describedOf = a.describeErr, a.At.Add(describeRetry), a.Reading.Identity
		if a.describeErr == nil { // else what it told before is better than nothing
			e.description, e.describeDue = a.Description, a.At.Add(describeEvery)
		}
	case !e.describedOf.Equal(a.Reading.Identity):
		e.describeDue = time.Time{} // it is another: asked at the next look
	}
}

// news is the event that is due, if one is.
func (e *entry) news() *event.Event {
	bad := e.failures >= dependableFailures
	if bad == e.told {
		return nil
	}
	e.told = bad
	ev := &event.Event{Type: EventBMC, Cluster: e.subject.Cluster, Node: e.subject.Node}
	if !bad {
		ev.Message = fmt.Sprintf("BMC %s of %s is dependable again", e.device(), e.subject.Host.Name)
		return ev
	}
	code, why := failure(e.last)
	ev.Reason = code
	ev.Message = fmt.Sprintf("BMC %s of %s is not dependable: %s", e.device(), e.subject.Host.Name, why)
	return ev
}

// failure is why a fence could not rely on what a look found; "" when it could.
func failure(a answer) (reason.Code, string) {
	switch {
	case a.Err != nil:
		return reasonOf(a.Err), reason.Sentence(a.Err)
	case a.Identity == guard.IdentityDiffers:
		return reason.IdentityMismatch, "another machine than the Node's answers"
	case a.Reading.Fault != "":
		return reason.BMCFault, "it reports " + a.Reading.Fault + ": no Off of it can be proven"
	}
	return "", ""
}

func reasonOf(err error) reason.Code {
	if r, ok := errors.AsType[*reason.Refusal](err); ok {
		return r.Reason
	}
	return reason.Code("BMC" + string(bmc.KindOf(err)))
}
