package escalate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

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
