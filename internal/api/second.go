package api

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// CodeSecondPersonNeeded is the answer to an order that two persons must give: it is
// remembered, and the same order by another user carries it out.
const CodeSecondPersonNeeded = "SecondPersonNeeded"

// secondWithin is how long the first of two persons is waited for.
const secondWithin = 10 * time.Minute

// maxFirsts bounds the orders that wait for their second person.
const maxFirsts = 1000

// second remembers orders that wait for a second person. They live in memory: after
// a restart both must be asked again.
type second struct {
	verbs []Verb

	mu     sync.Mutex
	firsts map[firstKey]first
}

// firstKey is what makes two orders the same: all but who gave it, and why.
type firstKey struct {
	verb               Verb
	cluster, node, run string
	offOnly, asIs, yes bool
	length             Span
}

type first struct {
	uid   uint32
	actor string
	until time.Time
}

// ask gives the order as it is to be carried out, with both names where two persons
// are needed, or says that the second is.
func (s *second) ask(o Order, p Peer, now time.Time) (Order, error) {
	if o.DryRun || !slices.Contains(s.verbs, o.Verb) {
		return o, nil
	}
	key := firstKey{o.Verb, o.Cluster, o.Node, o.Run, o.OffOnly, o.AsIs, o.Yes, o.For}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, f := range s.firsts {
		if !now.Before(f.until) {
			delete(s.firsts, k)
		}
	}
	f, waits := s.firsts[key]
	if waits && f.uid != p.UID {
		delete(s.firsts, key)
		o.Actor = f.actor + " and " + o.Actor
		return o, nil
	}
	if !waits {
		if len(s.firsts) >= maxFirsts {
			return o, Conflict("too many orders wait for a second person", "wait ten minutes")
		}
		f = first{p.UID, o.Actor, now.Add(secondWithin)}
		s.firsts[key] = f
	}
	return o, &Error{Status: http.StatusConflict, Code: CodeSecondPersonNeeded,
		Message: fmt.Sprintf("%s needs two persons: the same order by another user within %s carries it out", o.Verb, f.until.Sub(now).Round(time.Second)),
		Hint:    "which orders need two is control.twoPersons in fenced.yaml"}
}
