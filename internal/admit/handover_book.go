package admit

import (
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// placeFor is how long after a request may have been created no run starts on its target. Until
// then every look sees the request. // I22
const placeFor = 2 * time.Minute

// handoverPlaces are the targets for which a request is being created, by the names of Node and
// Machine, and until when no run may start on them.
type handoverPlaces map[string]time.Time

// on says why no run may start on a target; "" if one may.
func (p handoverPlaces) on(t remediate.Target, now time.Time) string {
	for _, name := range t.Names() {
		if now.Before(p[name]) {
			return "another remediator has just been asked to repair " + name
		}
	}
	return ""
}

// handoverBook is the part of a Book about requests for other remediators.
type handoverBook struct{ *Book }

// reserve keeps runs off a target while a request for it is created. It fails if one is open. // I22
func (b handoverBook) reserve(t remediate.Target, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isRunning(t) {
		return &reason.Refusal{Reason: reason.UnderRemediation, Message: "a run of fenced is open on the target"}
	}
	for name, until := range b.handovers {
		if !now.Before(until) {
			delete(b.handovers, name)
		}
	}
	for _, name := range t.Names() {
		b.handovers[name] = now.Add(placeFor)
	}
	return nil
}

// isRunning says whether a run is open on the target. b.mu is held.
func (b handoverBook) isRunning(t remediate.Target) bool {
	return slices.ContainsFunc(b.runs.open(), func(r remediate.Run) bool {
		return slices.ContainsFunc(t.Names(), func(name string) bool { return isOn(r, name) })
	})
}

// situations lists the targets whose requests fenced makes.
func (b handoverBook) situations(madeBy string, now time.Time) []escalate.Situation {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return nil
	}
	b.applyOpenRuns(now)
	var list []escalate.Situation
	for _, h := range b.ledger.HandedOver(now) {
		t := remediate.Target{Node: h.Target.Node}
		t.Namespace, t.Machine, _ = strings.Cut(h.Target.Machine, "/")
		list = append(list, escalate.Situation{HandedOver: h, MadeBy: madeBy, Running: b.isRunning(t)})
	}
	return list
}

// makers lists the checks whose requests fenced makes.
func (b handoverBook) makers() (list []policy.Check) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.ledger.Counters() {
		if check := b.ledger.Check(r.ID()); check != nil && check.MakesRequests() && r.State != policy.StatePaused && r.State != policy.StateInvalid {
			list = append(list, *check)
		}
	}
	return list
}

// setDisabled tells the ledger why nobody carries out the requests of checks.
func (b handoverBook) setDisabled(why map[string]string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger.SetDisabled(now, why)
}
