package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// maxFor bounds a pause or a hold that ends by itself.
const maxFor = wire.Span(365 * 24 * time.Hour)

// order gives the route of one verb, for callers with the role that the order needs.
func (s *Server) order(v wire.Verb) answer {
	return func(ctx context.Context, r *http.Request) (any, error) {
		p := peerFrom(r.Context()).named()
		o, unread := readOrder(r)
		o.Verb, o.Actor = v, p.Actor()
		o.Cluster, o.Node, o.Machine, o.Run = r.URL.Query().Get("cluster"), r.PathValue("node"), machineInPath(r), r.PathValue("id")
		if err := s.authorise(r, needs(o)); err != nil {
			s.recordRefusal(o, p, err)
			return nil, err
		}
		if unread != nil {
			return nil, unread
		}
		res, err := s.resolveAndCarryOut(ctx, r, &o, p)
		if err != nil {
			s.recordRefusal(o, p, errorOf(err))
			return nil, err
		}
		return res, nil
	}
}

// resolveAndCarryOut puts what the name in the order means in its place, before anything looks at the
// target: the rule of two persons, the daemon and the audit log see what the order is about.
func (s *Server) resolveAndCarryOut(ctx context.Context, r *http.Request, o *wire.Order, p Peer) (wire.OrderResult, error) {
	given := o.Named()
	means, err := s.resolve(o.Verb.Row().Wants(), given)
	if err != nil {
		return wire.OrderResult{}, err
	}
	*o = o.About(means)
	res, err := s.carryOut(ctx, r, *o, p)
	if err == nil && means != given {
		res.Named = &means
	}
	return res, err
}

// resolve asks the daemon what a name means. What names no target means itself.
func (s *Server) resolve(want wire.Wanted, n wire.Named) (wire.Named, error) {
	if want == wire.WantItself || n == (wire.Named{Cluster: n.Cluster}) {
		return n, nil
	}
	means, err := s.daemon.Resolve(want, n)
	if err == nil && (want == wire.WantNode && means.Node == "" || want == wire.WantRun && means.Run == "") {
		return n, NotFound(CodeNotFound, "the daemon does not know what the name means", "fencectl status shows the Nodes and the open runs")
	}
	return means, err
}

// carryOut gives the daemon an order of somebody who may give such orders.
func (s *Server) carryOut(ctx context.Context, r *http.Request, o wire.Order, p Peer) (wire.OrderResult, error) {
	if err := checkBody(o); err != nil {
		return wire.OrderResult{}, err
	}
	if needsAdmin(o) {
		if err := s.authorise(r, wire.Admin); err != nil {
			return wire.OrderResult{}, err
		}
	}
	if o.Verb == wire.ConfirmOff && !o.DryRun && o.Typed != o.Node {
		return wire.OrderResult{}, BadRequest(fmt.Sprintf("typed is %q, not the node's name, which is %q", o.Typed, o.Node), "give the order for the node by its name")
	}
	o, failed, err := s.twoPersons.check(o, p, time.Now())
	if err != nil {
		return wire.OrderResult{}, err
	}
	// The order completes even if its caller has disconnected: half an order is
	// worse than a lost answer.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	o.Role = s.roles.Of(p)
	end, err := s.dryRuns.begin(o, p)
	if err != nil {
		return wire.OrderResult{}, err
	}
	defer end()
	result, err := s.daemon.Do(whole, o)
	if err != nil {
		failed()
	}
	return result, err
}

// readOrder reads an order, which has a reason.
func readOrder(r *http.Request) (wire.Order, error) {
	o, err := readBody(r)
	if err != nil {
		return o, err
	}
	return o, CheckReason(o.Reason)
}

func readBody(r *http.Request) (wire.Order, error) {
	var o wire.Order
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBodyBytes))
	dec.DisallowUnknownFields()
	err := dec.Decode(&o)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			err = errors.New("more than one JSON value")
		}
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return wire.Order{}, &Error{Status: http.StatusRequestEntityTooLarge, Code: CodeTooLarge,
			Message: fmt.Sprintf("the body is larger than %d bytes", maxBodyBytes)}
	}
	if err != nil && !errors.Is(err, io.EOF) { // an empty body is an order without a reason
		return wire.Order{}, BadRequest(fmt.Sprintf("read the order: %v", err), "")
	}
	o.Reason = strings.TrimSpace(o.Reason)
	return o, nil
}

// CodeSecondPersonNeeded answers the first of two persons who must give the same order.
// The order is remembered; the same order by another person carries it out.
const CodeSecondPersonNeeded = "SecondPersonNeeded"

// CodePersonUnknown answers such an order if the kernel does not tell which person gives
// it. The order is not remembered.
const CodePersonUnknown = "PersonUnknown"

// secondWithin is how long the first order waits for the second person.
const secondWithin = 10 * time.Minute

// maxFirsts bounds the orders that wait for their second person, and maxFirstsEach those of one first person: who gives orders without
// end, about whatever names, keeps nobody else from giving one.
const (
	maxFirsts     = 1000
	maxFirstsEach = 100
)

// twoPersonRule remembers the orders that wait for a second person. It keeps them in
// memory: after a restart both persons must give the order again.
type twoPersonRule struct {
	verbs       []wire.Verb
	onlyCluster func() string // see Daemon

	mu      sync.Mutex
	waiting map[orderKey]firstOrder
}

// orderKey is what makes two orders the same: all but who gave it, and why.
type orderKey struct {
	verb               wire.Verb
	cluster, of, run   string
	offOnly, asIs, yes bool
	length             wire.Span
	group              wire.Group
	shown              string // to both
}

type firstOrder struct {
	persons       []uint32 // see Peer.persons
	actor, reason string
	until         time.Time
}

// isOf reports whether one of these persons gave the order.
func (f firstOrder) isOf(persons []uint32) bool {
	return slices.ContainsFunc(persons, func(uid uint32) bool { return slices.Contains(f.persons, uid) })
}

// joinedWith is the second person's order with both names, and with both reasons if they
// differ.
func (f firstOrder) joinedWith(o wire.Order) wire.Order {
	o.Actor = f.actor + " and " + o.Actor
	if o.Reason != f.reason {
		o.Reason = f.reason + "; " + o.Reason
	}
	return o
}

// check gives the order as it is to be carried out: with both names if it needs two
// persons. It is an error while the second person is missing. The call uses the first
// order up; failed restores it.
func (s *twoPersonRule) check(o wire.Order, p Peer, now time.Time) (both wire.Order, failed func(), err error) {
	if o.DryRun || !slices.Contains(s.verbs, o.Verb) {
		return o, func() {}, nil
	}
	persons, why := p.persons()
	if len(persons) == 0 {
		return o, nil, Refused(CodePersonUnknown,
			fmt.Sprintf("%s needs two persons, and fenced cannot tell which person %s is: %s", o.Verb, o.Actor, why),
			"log in under your own name, then give the order as yourself or with sudo; /proc/self/loginuid must hold your uid")
	}
	cluster := o.Cluster
	if o.Verb != wire.Resume { // without a cluster, it is about all
		cluster = cmp.Or(cluster, s.onlyCluster())
	}
	key := orderKey{o.Verb, cluster, o.Of(), o.Run, o.OffOnly, o.AsIs, o.Yes, o.For, o.Group, o.Shown}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0 // of these persons
	for k, f := range s.waiting {
		if !now.Before(f.until) {
			delete(s.waiting, k)
		} else if f.isOf(persons) {
			own++
		}
	}
	f, waits := s.waiting[key]
	if waits && !f.isOf(persons) {
		delete(s.waiting, key)
		return f.joinedWith(o), func() { s.restoreFirst(key, f) }, nil
	}
	if !waits {
		if len(s.waiting) >= maxFirsts || own >= maxFirstsEach {
			return o, nil, Conflict(CodeConflict, fmt.Sprintf("too many orders wait for a second person: %d, %d of them of %s", len(s.waiting), own, o.Actor), "wait ten minutes")
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

// deniedEvery is the shortest time between two records of one user who lacks the role
// for one verb, and between two lines of the log about refusals. Without it, whoever may
// only look could fill the disk of either.
const deniedEvery = time.Minute

// recordRefusal gives the daemon an order that ended in an error, for the audit log. A
// dry run, or a request that cannot be parsed, is no order.
func (s *Server) recordRefusal(o wire.Order, p Peer, e *Error) {
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
	verb wire.Verb
}

// first returns whether this user and verb were not recorded lately.
func (d *deniedLog) first(p Peer, v wire.Verb, now time.Time) bool {
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
func (d *dryRuns) begin(o wire.Order, p Peer) (end func(), err error) {
	if !o.DryRun || o.Role != wire.Viewer {
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
