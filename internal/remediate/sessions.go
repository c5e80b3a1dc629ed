package remediate

import (
	"fmt"
	"slices"
	"time"
)

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
