package remediate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// What the limits of package admit count of a run is derived from its record alone, so that a
// restart, or another instance, counts the same. // I11

// Start is one beginning of a run: of step 1, or of step 6 where the run only deletes a Machine.
type Start struct {
	At time.Time
	// Acted: the host may have been switched since, so the start counts as a run of the day. // I15
	Acted bool
}

// Starts lists when the run began, and when it began again at step 1 after a pause, by itself or
// by the order of a person, the oldest first. The next attempt of a run that did not pause is no
// start. The journal shows them; Tries has those that the journal does not hold any more. No start is
// later than Started: a clock that was ahead has written it, and alignClock corrects Started alone.
func (r Run) Starts() []Start {
	at := slices.Clone(r.Tries)
	for i, v := range r.Steps {
		if i == 0 || v.Step == PowerOff && r.Steps[i-1].Step.Idle() {
			at = append(at, v.Started)
		}
	}
	if len(r.Steps) == 0 {
		at = append(at, r.Started)
	}
	slices.SortFunc(at, time.Time.Compare)
	at = slices.CompactFunc(at, time.Time.Equal)
	list := make([]Start, len(at))
	for i := range at {
		tried := slices.ContainsFunc(r.Tries, at[i].Equal)
		list[i] = Start{At: times.Earlier(at[i], r.Started), Acted: tried || i == len(at)-1 && r.TouchedHost()}
	}
	return list
}

// maxLabels bounds the labels of a Node in a record, in bytes: a record must fit into the store.
const maxLabels = 16 << 10

// KnownLabels are the labels of a Node for a record. Nil says that they are not known, also where
// they are too large: then the Node counts in every zone, and, once it is gone, for every selector.
// A Node that exists and has no labels has an empty map. // I11
func KnownLabels(labels map[string]string) map[string]string {
	size := 0
	for name, value := range labels {
		size += len(name) + len(value)
	}
	switch {
	case size > maxLabels:
		return nil
	case labels == nil:
		return map[string]string{}
	}
	return maps.Clone(labels)
}

// NodeNames is how a Node named its Machines and its BareMetalHost; empty: it named none, or nobody knows it.
type NodeNames struct {
	OpenShiftMachine string `json:"openShiftMachine,omitempty"`
	ClusterMachine   string `json:"clusterMachine,omitempty"`
	ProviderID       string `json:"providerID,omitempty"`
}

// maxName bounds each of the names in a record, in bytes. What exists has a shorter one.
const maxName = 1 << 10

// KnownNames are the names for a record, without those that are too long. // I11
func KnownNames(n NodeNames) NodeNames {
	for _, name := range []*string{&n.OpenShiftMachine, &n.ClusterMachine, &n.ProviderID} {
		if len(*name) > maxName {
			*name = ""
		}
	}
	return n
}

// Settled says whether the record shows that the run switches nothing more by itself, and that its
// host is On, is being replaced, or was never touched. A run that a person has closed as it is has
// left its host as that person wanted it. Whoever waits for fenced may begin then. A run that waits
// because nobody asks for it, or because its attempts are used up, begins again only if somebody
// asks. // I22
//
// It says only what a worker has saved. A host that may have come On since counts as off.
func (r Run) Settled() bool {
	switch {
	case r.Step.Ended():
		return true
	case !r.Step.Idle(), anyOnPending(r), r.LeaveOff, restoreRequested(r), r.Retry != nil, hasNewConfirmation(r):
		return false
	case r.Step == Waiting && (r.Reason != reason.Withdrawn && r.Reason != reason.AttemptsExhausted || r.Wait == nil || r.Wait.Due || r.IsolatedAsked): // it goes on by itself
		return false
	}
	untouched := !r.TouchedHost() && r.OffLevel == 0
	return untouched || r.ReadOn()
}

// ReadOn says whether the journal shows that step 3 read the host On, and that it was neither
// switched off nor read Off since.
func (r Run) ReadOn() bool {
	last := -1
	for i, v := range r.Steps {
		if v.Step == PowerOn {
			last = i
		}
	}
	if last < 0 || last+1 == len(r.Steps) || r.Reason == reason.PowerForbidden || r.Steps[last+1].Step != AwaitNode && !broughtBack(r, last) {
		return false
	}
	since := func(steps ...Step) bool {
		return slices.ContainsFunc(r.Steps[last+1:], func(v Visit) bool { return slices.Contains(steps, v.Step) })
	}
	if strings.HasSuffix(r.Steps[last].Note, levelSkipped) && !since(RestoreNode) { // only its outlets read On
		return false
	}
	return !since(PowerOff, DeleteNode) || !r.Intervened
}

// broughtBack says whether a visit to step 3 has brought the host of an abandoned attempt back On: the
// run then stops for the reason for which it was abandoned, and for another one if the host stays off.
func broughtBack(r Run, visit int) bool {
	if visit == 0 || r.OffLevel > 0 {
		return false
	}
	code := r.Steps[visit].Reason()
	return code != "" && code == r.Steps[visit-1].Reason()
}

// A BMC has few sessions, often four, and keeps one that nobody ends until it was unused for a
// minute. A daemon that is killed leaves one behind; one that is killed again and again would take
// them all, from people too.

// maxLeftOpen is how many sessions fenced may have left behind when it opens another. That leaves
// one of four to others.
const maxLeftOpen = 2

// Sessions says what a run knows about its sessions with the BMC.
type Sessions struct {
	// Open: a process has a session, or had one when it died.
	Open bool `json:"open,omitempty"`
	// Left are sessions of processes that died. Each was used until then at the latest.
	Left []time.Time `json:"left,omitempty"`
}

// OpenSession is what becomes of the sessions of a run when a process opens one. first says whether
// it has opened none before: a session on the record then belongs to a process that died. An error
// says until when none may be opened.
func (r Run) OpenSession(first bool, now time.Time) (Sessions, error) {
	if r.Limits.SessionTimeout == 0 {
		return Sessions{}, nil
	}
	// IPMI gives the time a tolerance of a twentieth (IPMI 2.0, section 6.12.15).
	kept := r.Limits.SessionTimeout + r.Limits.SessionTimeout/20
	var left []time.Time
	for _, t := range r.Sessions.Left { // a time to come is of another host's clock
		if now.Sub(t).Abs() < kept {
			left = append(left, t)
		}
	}
	if r.Sessions.Open && first {
		left = append(left, now)
	}
	if n := len(left); n >= maxLeftOpen {
		next := slices.MinFunc(left, time.Time.Compare).Add(kept)
		return Sessions{Left: left}, fmt.Errorf("earlier processes of fenced may have left %d sessions open; the next is opened at %s, when the BMC has ended one",
			n, next.UTC().Format(time.TimeOnly+"Z"))
	}
	return Sessions{Open: true, Left: left}, nil
}
