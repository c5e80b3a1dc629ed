package api

import (
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"
)

// deniedEvery is the shortest time between two records of one user who lacks the role
// for one verb, and between two lines of the log about refusals. Without it, whoever may
// only look could fill the disk of either.
const deniedEvery = time.Minute

// recordRefusal gives the daemon an order that ended in an error, for the audit log. A
// dry run, or a request that cannot be parsed, is no order.
func (s *Server) recordRefusal(o Order, p Peer, e *Error) {
	switch {
	case o.DryRun, e.Status == http.StatusBadRequest, e.Status == http.StatusRequestEntityTooLarge:
		return
	case e.Code == CodeNotAuthorised && !s.deniedLog.first(p, o.Verb, time.Now()):
		return
	}
	if CheckReason(o.Reason) != nil {
		o.Reason = ""
	}
	s.daemon.Refused(o, e)
}

// deniedLog remembers which users and verbs were recorded lately.
type deniedLog struct {
	mu       sync.Mutex
	recorded map[deniedKey]time.Time
}

type deniedKey struct {
	uid  uint32
	verb Verb
}

// first says whether this user and verb were not recorded lately.
func (d *deniedLog) first(p Peer, v Verb, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, at := range d.recorded {
		if now.Sub(at) >= deniedEvery {
			delete(d.recorded, key)
		}
	}
	key := deniedKey{p.countsAs(), v}
	if _, told := d.recorded[key]; told {
		return false
	}
	d.recorded[key] = now
	return true
}

// refusalLog writes at most one line about refusals in deniedEvery, and counts the others.
type refusalLog struct {
	log *log.Logger

	mu      sync.Mutex
	written time.Time
	left    int // out since then
}

func (r *refusalLog) printf(now time.Time, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.written) < deniedEvery {
		r.left++
		return
	}
	text := fmt.Sprintf(format, args...)
	if r.left > 0 {
		text += fmt.Sprintf(" (and %d refusals before this one that have no line)", r.left)
	}
	r.written, r.left = now, 0
	r.log.Print(text)
}

// dryRuns knows which viewers have a dry run going: each has one at a time, so that one viewer
// does not keep the places of all.
type dryRuns struct {
	mu sync.Mutex
	by map[uint32]bool
}

// begin gives an order its place, until end is called. Only a viewer's dry run needs one.
func (d *dryRuns) begin(o Order, p Peer) (end func(), err error) {
	if !o.DryRun || o.Role != Viewer {
		return func() {}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	uid := p.countsAs()
	if d.by[uid] {
		return nil, Conflict(CodeConflict, p.Actor()+" has a dry run going, and a viewer has one at a time", "wait until it ends")
	}
	d.by[uid] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.by, uid)
	}, nil
}
