package escalate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// ask is one target for which another remediator is to be asked.
type ask struct {
	cluster.Candidate
	at time.Time // when its gates last passed
}

// key tells the asks of two checks for one target apart.
type key struct{ check, target string }

func keyOf(a cluster.Candidate) key { return key{a.Draft.CheckID, a.Key} }

// Cluster lets other remediators be asked in one cluster, and keeps the records of that: package admit evaluates the
// gates of each target, and the loop does the I/O. It implements admit.Escalation.
type Cluster struct {
	opt   admit.Options
	admit *admit.Cluster
	// objects writes in the cluster; nil: nothing is written.
	objects func() Objects
	// controllerAlive says whether the controller of checks of a kind is alive.
	controllerAlive func(context.Context, policy.CheckID) (remediate.Answer, error)
	records         *Records
	changed         chan struct{} // signals that requests may have to be made

	// writing is held from the change of a record in the Model until it is known what the store has. The
	// deciding loop never takes it.
	writing *semaphore.Weighted

	mu sync.Mutex
	// wanted are the targets whose gates have passed.
	wanted map[key]ask
	// problems are why the last step for a Node or Machine was not done, until when they are told.
	problems map[string]problem
	// missing and ignored say by the mark of a check why nobody carries out its requests; disabled
	// is both, as the ledger knows it.
	missing, ignored, disabled map[string]string
}

type problem struct {
	gate  reason.Gate
	until time.Time
}

// wantedFor is for how long the gates of a target count as passed: two evaluations by package admit.
const wantedFor = 10 * time.Second

// Consider implements admit.Escalation.
func (c *Cluster) Consider(a cluster.Candidate, passed bool, now time.Time) (waits reason.Gate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.wanted, keyOf(a))
	if !passed {
		return waits
	}
	c.wanted[keyOf(a)] = ask{a, now}
	if p := c.problems[cluster.SubjectOf(a.Draft.Target)]; now.Before(p.until) {
		waits = p.gate
	}
	return waits
}

// KeepOnly implements admit.Escalation.
func (c *Cluster) KeepOnly(considered func(check, target string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.wanted, func(k key, _ ask) bool { return !considered(k.check, k.target) })
	live.Signal(c.changed)
}

// Gates implements admit.Escalation.
func (c *Cluster) Gates(t remediate.Target, now time.Time) []reason.Gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range t.Names() {
		if p := c.problems[name]; now.Before(p.until) {
			return []reason.Gate{p.gate}
		}
	}
	return nil
}

// asks lists the targets whose gates have just passed.
func (c *Cluster) asks(now time.Time) (list []ask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, o := range c.wanted {
		if now.Sub(o.at) > wantedFor {
			delete(c.wanted, key)
			continue
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b ask) int {
		return cmp.Or(strings.Compare(a.Check.Mark(), b.Check.Mark()), strings.Compare(cluster.SubjectOf(a.Draft.Target), cluster.SubjectOf(b.Draft.Target)))
	})
	return list
}

// note stores why a step for a target was not done, until it is tried again; an empty reason: it
// was done.
func (c *Cluster) note(t remediate.Target, check string, why reason.Code, message string, now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.problems {
		if !now.Before(p.until) {
			delete(c.problems, name)
		}
	}
	for _, name := range t.Names() {
		delete(c.problems, name)
		if why != "" {
			c.problems[name] = problem{until: until, gate: reason.Gate{
				Name: "remediator", Reason: why, Value: message, Threshold: "asked for a repair", Source: "check " + check}}
		}
	}
}

// stopped returns the reason why nothing may be written about the newest object of a record now: people have stopped
// it or given the record up, or this instance may not act. It is asked before each write. tidies: the target is well, and fenced
// removes what it made; a cluster that was disarmed does not stop that. // I23
func (c *Cluster) stopped(r Record, tidies bool) error {
	if err := c.admit.WhyNotWrite(r.Target); err != nil {
		return err
	}
	if !tidies && !c.admit.Armed() {
		return &reason.Refusal{Reason: reason.Observing, Message: "the mode of the cluster is " + c.opt.Mode}
	}
	if !c.stands(r) {
		return fmt.Errorf("record %s of another remediator was given up meanwhile", r.ID)
	}
	return nil
}

// setMissing stores why the templates of checks cannot be used, by the mark of the check. These
// checks are Disabled.
func (c *Cluster) setMissing(why map[string]string, now time.Time) {
	c.disable(now, func() { c.missing = maps.Clone(why) })
}

// setIgnored stores the checks whose requests nobody begins, by the mark of the check.
func (c *Cluster) setIgnored(why map[string]string, now time.Time) {
	c.disable(now, func() { c.ignored = maps.Clone(why) })
}

// disable makes a change, tells the ledger, and requests a decision if that changes a check. Two
// goroutines call it: the lock is kept until the ledger knows, so that it has the newer of two changes.
func (c *Cluster) disable(now time.Time, change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	all := map[string]string{}
	maps.Copy(all, c.ignored)
	maps.Copy(all, c.missing)
	if maps.Equal(all, c.disabled) {
		return
	}
	c.disabled = all
	c.opt.Model.Objects.SetDisabled(all, now)
	c.admit.Wake()
}

// Escalation asks other remediators in all clusters. It implements engine.Escalation.
type Escalation struct {
	// Objects returns what makes the requests in a cluster; nil: none is made.
	Objects func(cluster string) Objects

	store    state.Store
	emit     func(event.Event)
	clusters live.Map[*Cluster]

	mu     sync.Mutex
	stored []Record           // as they were read last
	told   event.Told[string] // what could not be read
}

// New returns what asks other remediators. It reads the store when the engine calls Load.
func New(store state.Store, emit func(event.Event), objects func(cluster string) Objects) *Escalation {
	return &Escalation{store: store, emit: emit, Objects: objects}
}

// Add implements engine.Escalation: it joins a cluster, with the records that were read last.
func (e *Escalation) Add(a *admit.Cluster, controllerAlive func(context.Context, policy.CheckID) (remediate.Answer, error)) admit.Escalation {
	o := a.Options()
	c := &Cluster{opt: o, admit: a, objects: func() Objects { return e.Objects(o.Name) }, controllerAlive: controllerAlive, records: NewRecords(o.Model),
		changed: make(chan struct{}, 1), writing: semaphore.NewWeighted(1), wanted: map[key]ask{}, problems: map[string]problem{}}
	e.mu.Lock()
	c.records.Load(e.stored, false)
	e.mu.Unlock()
	e.clusters.Put(o.Name, c)
	return c
}

// Remove implements engine.Escalation.
func (e *Escalation) Remove(cluster string) { e.clusters.Delete(cluster) }

// maxUnreadText bounds what is told about records that cannot be read, in bytes.
const maxUnreadText = 500

// Load implements engine.Escalation. A record that cannot be read blocks its target, and nothing
// else: its key names the target. It is told, once. The error is that of a store that does not
// answer. // I20, I22
func (e *Escalation) Load(ctx context.Context) (begin func(cluster string), err error) {
	all, err := Load(ctx, e.store)
	if err != nil && !errors.Is(err, state.ErrUnreadable) {
		return nil, fmt.Errorf("load what other remediators were asked: %w", err)
	}
	var unread []string
	for _, r := range all {
		if r.Unreadable != "" {
			unread = append(unread, fmt.Sprintf("nobody acts on %s in cluster %s until fencectl abort %s --as-is --yes --reason WHY: %s", strings.Join(r.Target.Names(), ", "), r.Target.Cluster, r.ID, r.Unreadable))
		}
	}
	if err != nil { // nobody knows for which target
		unread = append(unread, err.Error())
	}
	message := bmc.Printable(strings.Join(unread, "; "), maxUnreadText)
	e.mu.Lock()
	e.stored = all
	news := e.told.News(message)
	e.mu.Unlock()
	if news {
		e.emit(event.Event{Type: event.Internal, Message: "what other remediators were asked cannot be read: " + message})
	}
	for _, c := range e.clusters.All() {
		c.load(all, false)
	}
	return func(cluster string) { e.clusters.Get(cluster).load(all, true) }, nil
}

// load replaces the records of a cluster by those in the store. A decision is requested only if one has changed.
func (c *Cluster) load(all []Record, begins bool) {
	if c.records.Load(all, begins) {
		c.admit.Wake()
	}
}

// WhyNotStart implements engine.Escalation.
func (e *Escalation) WhyNotStart(missing func(cluster string) bool) error {
	i := slices.IndexFunc(e.stored, func(r Record) bool {
		return r.Blocking() && r.Unreadable == "" && missing(r.Target.Cluster)
	})
	if i < 0 {
		return nil
	}
	r := e.stored[i]
	return fmt.Errorf("%s, which fenced made for %s, may exist in cluster %q, which the configuration no longer names; add the cluster again until fenced has deleted the object, "+
		"or until you have given it up with fencectl abort %s --as-is --reason WHY", r.Newest(), strings.Join(r.Target.Names(), ", "), r.Target.Cluster, r.ID)
}

// WhyNotRemove implements engine.Escalation.
func (e *Escalation) WhyNotRemove(cluster string) error {
	e.mu.Lock()
	all := slices.Concat(e.clusters.Get(cluster).records.All(), e.stored)
	e.mu.Unlock()
	for _, r := range all {
		if r.Target.Cluster == cluster && r.Blocking() {
			return fmt.Errorf("cluster %s cannot be removed yet: %s may be at work on %s; wait until fenced has deleted its object, or give it up with fencectl abort %s --as-is --reason WHY",
				cluster, r.Asks(), strings.Join(r.Target.Names(), ", "), r.ID)
		}
	}
	return nil
}

// Prune implements engine.Escalation. The loop of a cluster deletes its records itself, a day after their end; this deletes those of clusters
// that are not configured any more.
func (e *Escalation) Prune(ctx context.Context, store state.Store, before time.Time) (err error) {
	e.mu.Lock()
	all := e.stored
	e.mu.Unlock()
	for _, r := range all {
		if r.Ended.IsZero() || !r.Ended.Before(before) {
			continue
		}
		if e := remove(ctx, store, r); e != nil && !errors.Is(e, state.ErrNotFound) && !errors.Is(e, state.ErrConflict) { // somebody was faster
			err = errors.Join(err, e)
		}
	}
	return err
}

// Run implements admit.Escalation.
func (c *Cluster) Run(ctx context.Context) error {
	objects := c.objects()
	if objects == nil {
		return nil
	}
	w, templates := newWriter(c, objects), &templateWatch{c: c, objects: objects, missing: map[string]string{}}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.run(ctx) })
	g.Go(func() error { return templates.run(ctx) })
	return g.Wait()
}

func (c *Cluster) emit(ev event.Event) {
	ev.Cluster = c.opt.Name
	c.opt.Emit(ev)
}
