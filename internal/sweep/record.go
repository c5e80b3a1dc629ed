package sweep

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
)

const (
	// dependableFailures is the number of consecutive failed polls after which a
	// device is reported as not dependable.
	dependableFailures = 3
	// maxInterval is the longest time between polls of a device that keeps failing.
	maxInterval = 10 * time.Minute

	describeEvery = time.Hour
	describeRetry = 10 * time.Minute // after a description that failed
	auditEvery    = 24 * time.Hour
	auditRetry    = time.Hour // after an audit that failed
	firstAudit    = time.Hour // the first audit takes place within this time
	keptLatencies = 20
)

// EventBMC is the type of the events of the sweep. An event with a Reason means
// that a device is no longer dependable, one without that it is dependable again or not
// checked any more.
const EventBMC = "BMC"

// entry is one device of the inventory: its schedule and its results. Sweep.mu
// guards all fields. There may be a hundred thousand.
type entry struct {
	*results
	id      deviceID
	service string   // bmc.Device.Service
	subject *subject // the one of all devices of its host, until it is gone

	due            time.Time
	auditDue       time.Time
	place          int  // index in the heap schedule.later; -1 if it is not in it
	countedSuspect bool // the poll in flight counts in schedule.suspects
	gone           bool // removed from the inventory
	polled, again  bool // a poll is in flight, and another one is to follow it at once
}

// results is what the polls of a device found.
type results struct {
	last        lastPoll
	failures    int  // consecutive
	reportedBad bool // an event has reported that it is not dependable
	lastGood    time.Time
	lastOn      time.Time       // when a poll read the host of the device On last
	latencies   []time.Duration // of the newest successful polls, oldest first

	description *bmc.Description
	describeErr error        // error of the newest description
	describeDue time.Time    // zero: at the next poll
	describedOf bmc.Identity // the identity that description belongs to

	findings []bmc.Finding // of the newest audit
	audited  time.Time
	auditErr error
}

// unpolled is what is known of every device before its first poll. Nobody changes it.
var unpolled = &results{description: &bmc.Description{}}

func newEntry(id deviceID, d bmc.Device, now time.Time) *entry {
	return &entry{results: unpolled, id: id, service: d.Service(), place: -1, auditDue: now.Add(rand.N(firstAudit))}
}

// lastPoll is what is kept of the newest poll of a device; At is zero before the first.
type lastPoll struct {
	At       time.Time
	Reading  bmc.Reading
	Identity guard.IdentityVerdict
	Err      error
}

func (e *entry) device() bmc.Device { return e.subject.device(e.id) }

func (e *entry) isSuspect() bool { return e.failures > 0 }

// nextScope is what the next poll queries. What changes rarely is queried rarely.
func (e *entry) nextScope(now time.Time) scope {
	return scope{describe: !now.Before(e.describeDue), audit: !now.Before(e.auditDue)}
}

// interval is the time until the next poll. It grows for a device that keeps
// failing, so that dead devices do not fill the slots.
func (e *entry) interval(every time.Duration) time.Duration {
	p := every
	for i := dependableFailures; i < e.failures && p < maxInterval; i++ {
		p *= 2
	}
	return max(every, min(p, maxInterval))
}

// record records a poll. It returns an event if the device became dependable, or
// stopped being so.
func (e *entry) record(a answer) *event.Event {
	if e.results == unpolled {
		first := *unpolled
		e.results = &first
	}
	e.last = lastPoll{At: a.At, Reading: a.Reading, Identity: a.Identity, Err: a.Err}
	if a.Err == nil && a.Reading.State == bmc.On && a.Identity != guard.IdentityDiffers {
		e.lastOn = a.At
	}
	if why, _ := failure(e.last); why != "" {
		e.failures++
		if bmc.KindOf(a.Err).RefusesAccount() { // once is enough: BMCs lock accounts
			e.failures = max(e.failures, dependableFailures)
		}
		e.describeDue = time.Time{} // another device may answer next
	} else {
		e.recordSuccess(a)
	}
	if a.audited {
		e.findings, e.auditErr, e.audited, e.auditDue = a.findings, a.auditErr, a.At, a.At.Add(auditEvery)
		if a.auditErr != nil {
			e.auditDue = a.At.Add(auditRetry)
		}
	}
	return e.dependabilityEvent()
}

func (e *entry) recordSuccess(a answer) {
	e.failures, e.lastGood = 0, a.At
	if len(e.latencies) == keptLatencies {
		e.latencies = slices.Delete(e.latencies, 0, 1)
	}
	e.latencies = append(e.latencies, a.Latency)
	switch {
	case a.described:
		e.describeErr, e.describeDue, e.describedOf = a.describeErr, a.At.Add(describeRetry), a.Reading.Identity
		if a.describeErr == nil { // an older description is better than none
			t := a.Description // alone, without the rest of the answer
			e.description, e.describeDue = &t, a.At.Add(describeEvery)
		}
	case e.describedOf != a.Reading.Identity:
		e.describeDue = time.Time{} // another device answers: describe it in the next poll
	}
}

// dependabilityEvent returns the event to publish, if any.
func (e *entry) dependabilityEvent() *event.Event {
	bad := e.failures >= dependableFailures
	if bad == e.reportedBad || e.gone {
		return nil
	}
	e.reportedBad = bad
	if !bad {
		return e.event("is dependable again")
	}
	code, why := failure(e.last)
	ev := e.event("is not dependable: " + why)
	ev.Reason = code
	return ev
}

// event is one about the device. Package history finds the name of the device before these words.
func (e *entry) event(says string) *event.Event {
	return &event.Event{Type: EventBMC, Cluster: e.subject.cluster, Node: e.subject.node, Message: fmt.Sprintf("BMC %s of %s %s", e.device(), e.subject.bare.Name, says)}
}

// failure returns why a fence could not rely on the result of a poll; "" if it
// could.
func failure(p lastPoll) (reason.Code, string) {
	switch {
	case p.Err != nil:
		return reasonOf(p.Err), reason.Sentence(p.Err)
	case p.Identity == guard.IdentityDiffers:
		return reason.IdentityMismatch, "another machine than the Node's answers"
	case p.Reading.Fault != "":
		return reason.BMCFault, "it reports " + p.Reading.Fault + ", so it cannot prove Off"
	}
	return "", ""
}

func reasonOf(err error) reason.Code {
	if r, ok := errors.AsType[*reason.Refusal](err); ok {
		return r.Reason
	}
	return reason.Code("BMC" + string(bmc.KindOf(err)))
}
