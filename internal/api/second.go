package api

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// CodeSecondPersonNeeded answers the first of two persons who must give the same order.
// The order is remembered; the same order by another person carries it out.
const CodeSecondPersonNeeded = "SecondPersonNeeded"

// CodePersonUnknown answers such an order if the kernel does not tell which person gives
// it. The order is not remembered.
const CodePersonUnknown = "PersonUnknown"

// secondWithin is how long the first order waits for the second person.
const secondWithin = 10 * time.Minute

// maxFirsts bounds the orders that wait for their second person.
const maxFirsts = 1000

// twoPersonRule remembers the orders that wait for a second person. It keeps them in
// memory: after a restart both persons must give the order again.
type twoPersonRule struct {
	verbs []Verb

	mu      sync.Mutex
	waiting map[orderKey]firstOrder
}

// orderKey is what makes two orders the same: all but who gave it, and why.
type orderKey struct {
	verb               Verb
	cluster, of, run   string
	offOnly, asIs, yes bool
	length             Span
}

type firstOrder struct {
	persons       []uint32 // see Peer.persons
	actor, reason string
	until         time.Time
}

// joinedWith is the second person's order with both names, and with both reasons if they
// differ.
func (f firstOrder) joinedWith(o Order) Order {
	o.Actor = f.actor + " and " + o.Actor
	if o.Reason != f.reason {
		o.Reason = f.reason + "; " + o.Reason
	}
	return o
}

// check gives the order as it is to be carried out: with both names if it needs two
// persons. It is an error while the second person is missing. The call uses the first
// order up; failed restores it.
func (s *twoPersonRule) check(o Order, p Peer, now time.Time) (both Order, failed func(), err error) {
	if o.DryRun || !slices.Contains(s.verbs, o.Verb) {
		return o, func() {}, nil
	}
	persons, why := p.persons()
	if len(persons) == 0 {
		return o, nil, Refused(CodePersonUnknown,
			fmt.Sprintf("%s needs two persons, and fenced cannot tell which person %s is: %s", o.Verb, o.Actor, why),
			"log in under your own name, then give the order as yourself or with sudo; /proc/self/loginuid must hold your uid")
	}
	key := orderKey{o.Verb, o.Cluster, o.Of(), o.Run, o.OffOnly, o.AsIs, o.Yes, o.For}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, f := range s.waiting {
		if !now.Before(f.until) {
			delete(s.waiting, k)
		}
	}
	f, waits := s.waiting[key]
	if waits && !slices.ContainsFunc(persons, func(uid uint32) bool { return slices.Contains(f.persons, uid) }) {
		delete(s.waiting, key)
		return f.joinedWith(o), func() { s.restoreFirst(key, f) }, nil
	}
	if !waits {
		if len(s.waiting) >= maxFirsts {
			return o, nil, Conflict(CodeConflict, "too many orders wait for a second person", "wait ten minutes")
		}
		f = firstOrder{persons, o.Actor, o.Reason, now.Add(secondWithin)}
		s.waiting[key] = f
	}
	return o, nil, &Error{Status: http.StatusConflict, Code: CodeSecondPersonNeeded,
		Message: fmt.Sprintf("%s needs two persons: another person must give the same order within %s", o.Verb, f.until.Sub(now).Round(time.Second)),
		Hint:    "another user must log in and give it; sudo does not make you a second person; control.twoPersons in fenced.yaml lists these orders"}
}

// restoreFirst puts a first order back until it expires, unless there is a newer one. It
// is for a second order that was not carried out.
func (s *twoPersonRule) restoreFirst(key orderKey, f firstOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, newer := s.waiting[key]; !newer && len(s.waiting) < maxFirsts {
		s.waiting[key] = f
	}
}
