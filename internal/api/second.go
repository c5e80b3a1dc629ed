package api

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// CodeSecondPersonNeeded is the answer to an order that two persons must give: it is
// remembered, and the same order by another person carries it out.
const CodeSecondPersonNeeded = "SecondPersonNeeded"

// CodePersonUnknown is the answer to such an order by somebody of whom the kernel does
// not tell which person it is. It counts for nothing.
const CodePersonUnknown = "PersonUnknown"

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
	persons       []uint32 // see Peer.persons
	actor, reason string
	until         time.Time
}

// order is what the second person ordered, with the names of both, and their reasons
// where they differ.
func (f first) order(o Order) Order {
	o.Actor = f.actor + " and " + o.Actor
	if o.Reason != f.reason {
		o.Reason = f.reason + "; " + o.Reason
	}
	return o
}

// ask gives the order as it is to be carried out, with both names where two persons
// are needed, or says that the second is. The first order is used up with that;
// failed gives it back.
func (s *second) ask(o Order, p Peer, now time.Time) (both Order, failed func(), err error) {
	if o.DryRun || !slices.Contains(s.verbs, o.Verb) {
		return o, func() {}, nil
	}
	persons, why := p.persons()
	if len(persons) == 0 {
		return o, nil, Refused(CodePersonUnknown,
			fmt.Sprintf("%s needs two persons, and fenced cannot tell which person %s is: %s", o.Verb, o.Actor, why),
			"log in under your own name, then give the order as yourself or with sudo; /proc/self/loginuid must hold your uid")
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
	if waits && !slices.ContainsFunc(persons, func(uid uint32) bool { return slices.Contains(f.persons, uid) }) {
		delete(s.firsts, key)
		return f.order(o), func() { s.giveBack(key, f) }, nil
	}
	if !waits {
		if len(s.firsts) >= maxFirsts {
			return o, nil, Conflict(CodeConflict, "too many orders wait for a second person", "wait ten minutes")
		}
		f = first{persons, o.Actor, o.Reason, now.Add(secondWithin)}
		s.firsts[key] = f
	}
	return o, nil, &Error{Status: http.StatusConflict, Code: CodeSecondPersonNeeded,
		Message: fmt.Sprintf("%s needs two persons: another person must give the same order within %s", o.Verb, f.until.Sub(now).Round(time.Second)),
		Hint:    "another user must log in and give it; sudo does not make you a second person; control.twoPersons in fenced.yaml lists these orders"}
}

// giveBack keeps a first order until its time is over, unless there is a newer one: the
// order that used it up was not carried out.
func (s *second) giveBack(key firstKey, f first) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, newer := s.firsts[key]; !newer && len(s.firsts) < maxFirsts {
		s.firsts[key] = f
	}
}
