package stop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/times"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// Options is what a Stop is made from.
type Options struct {
	Store state.Store
	Emit  func(event.Event)
	// PauseFile is the path of a file that pauses everything while it exists; "" is none.
	PauseFile string
}

// Stop knows every stop of one daemon. Make it with New, and Attach each cluster.
//
// The store's records (of clusters with their pauses, and of holds), the stops that it has not saved
// yet, the pause file, the unreadable records and the clocks are parts with a lock each. No part calls another one while
// it holds its lock.
type Stop struct {
	opt      Options
	clusters *clusters
	clocks   *clocks
	file     *pauseFile
	corrupt  *corruptRecords
	records  *state.Table[state.Cluster]
	holds    *state.Table[state.Hold] // and quarantines
	unsaved  *unsavedStops
	saving   *semaphore.Weighted // one change of a stop at a time; held during I/O
}

// New loads the stops. An error means that the store could not be read at all. If single
// records cannot be read, everything is paused instead. // I20
func New(ctx context.Context, opt Options) (*Stop, error) {
	s := &Stop{
		opt: opt, clusters: &clusters{}, file: &pauseFile{path: opt.PauseFile}, corrupt: &corruptRecords{errs: map[state.Kind]error{}},
		unsaved: &unsavedStops{byKey: map[key]stop{}}, saving: semaphore.NewWeighted(1),
	}
	s.clocks = &clocks{clusters: s.clusters}
	s.records = state.NewTable(state.Clusters, s.recordChanged)
	s.holds = state.NewTable(state.Holds, func(h state.Hold) { s.clusters.wake(h.Cluster) })
	if err := s.NoteUnread(state.KindCluster, s.records.Load(ctx, s.opt.Store)); err != nil {
		return nil, fmt.Errorf("load the state of the clusters: %w", err)
	}
	if err := s.NoteUnread(state.KindHold, s.holds.Load(ctx, s.opt.Store)); err != nil {
		return nil, fmt.Errorf("load holds: %w", err)
	}
	return s, nil
}

// Attach adds a cluster. The stops of people that are on record bind it at once.
func (s *Stop) Attach(name string, c Cluster) { s.clusters.Put(name, c) }

// Detach removes a cluster. What people have stopped there stays on record.
func (s *Stop) Detach(name string) { s.clusters.Delete(name) }

// Load reads what other instances have stored. Records that exist and cannot be read are no
// error: they pause everything. // I20
func (s *Stop) Load(ctx context.Context) error {
	return errors.Join(
		s.NoteUnread(state.KindCluster, s.records.Load(ctx, s.opt.Store)),
		s.NoteUnread(state.KindHold, s.holds.Load(ctx, s.opt.Store)),
	)
}

// Why returns why nothing destructive may be done to a target: everything is paused, or a person
// holds its Node or its Machine. It is "" if neither is true. // I23
func (s *Stop) Why(cluster string, names ...string) string {
	if why := s.Paused(cluster); why != "" {
		return why
	}
	return s.Held(cluster, names...)
}

// OfCluster lists what is stopped under the name of one cluster: its own pause, its holds and its quarantines. // I23
func (s *Stop) OfCluster(cluster string) (list []string) {
	for _, p := range s.pausesOf(cluster) {
		if p.active(s.EndBy(cluster)) {
			list = append(list, pauseText(cluster, p))
		}
	}
	for _, h := range s.Holds(cluster) {
		list = append(list, h.Node+" is held by "+h.By+untilText(h.Until)+": "+h.Reason)
	}
	return list
}

// Record returns what people ordered for a cluster, or for all clusters, as it was last stored.
func (s *Stop) Record(cluster string) state.Cluster {
	r, _ := s.records.Get(state.Cluster{Name: cluster}.Key())
	r.Name = cluster
	return r
}

// Change stores a change of a cluster's record, on top of what another instance may have
// stored. If the store refuses, nothing changes in memory.
func (s *Stop) Change(ctx context.Context, cluster string, change func(*state.Cluster)) error {
	_, err := s.records.Update(ctx, s.opt.Store, state.Cluster{Name: cluster}.Key(), func(r state.Cluster, _ bool) (state.Cluster, bool) {
		r.Name = cluster
		change(&r)
		return r, true
	})
	return err
}

// recordChanged applies a cluster's record that was stored: it may have ended a pause, or armed
// the cluster.
func (s *Stop) recordChanged(r state.Cluster) {
	s.clusters.beQuiet(r.Name, r.ResumedAt)
	if r.Armed {
		s.clusters.beQuiet(r.Name, r.ArmedAt)
	}
	s.clusters.wake(r.Name)
}

// Cluster is what a Stop needs from one cluster.
type Cluster interface {
	// Skew is the API server's clock minus this host's clock, or 0 if the two differ
	// by no more than is allowed. seen reports whether the whole cluster was seen recently:
	// before that, nobody knows whether this host's clock is right.
	Skew() (skew time.Duration, seen bool)
	// BeQuiet begins a quiet period at a time. // I16
	BeQuiet(from time.Time)
	// Wake makes the cluster decide again at once, because a stop began or ended.
	Wake()
}

// clusters are the clusters of one daemon by name.
type clusters struct{ live.Map[Cluster] }

// named returns the clusters that a stop is about: the one of that name, or all of them for
// state.AllClusters.
func (c *clusters) named(cluster string) map[string]Cluster {
	if cluster == state.AllClusters {
		return c.All()
	}
	if one := c.Get(cluster); one != nil {
		return map[string]Cluster{cluster: one}
	}
	return nil
}

func (c *clusters) beQuiet(cluster string, from time.Time) {
	for _, one := range c.named(cluster) {
		one.BeQuiet(from)
	}
}

func (c *clusters) wake(cluster string) {
	for _, one := range c.named(cluster) {
		one.Wake()
	}
}

const saveTime = 5 * time.Second // bounds the save of a stop, which binds before it is saved

// stored returns the stored stop of a key.
func (s *Stop) stored(k key) stop {
	if k.node == "" {
		return pauseOf(s.Record(k.cluster))
	}
	return holdOf(s.holdRecord(k, false))
}

// begin makes an order a stop. The stop binds at once, whatever the store does, and never
// shortens one that is there. verb is what the person does, and done what is then true of the
// cluster or Node; both are for messages. // I23
func (s *Stop) begin(ctx context.Context, k key, o wire.Order, verb, done string) order.Outcome {
	ordered := s.clocks.stopBy(o)
	v := s.bind(k, ordered)
	s.clusters.wake(k.cluster)
	s.opt.Emit(o.Event(verb + untilText(ordered.until)))
	v, err := s.save(ctx, k, v)
	out := order.Outcome{Until: v.until, Earlier: v.earlierThan(ordered)}
	if err != nil {
		out.Unsaved = unsavedText(done, err)
		s.opt.Emit(k.event(event.Event{Type: event.Failed, Message: out.Unsaved}))
	}
	return out
}

// bind makes v bind, or a stop that is there and ends no earlier, and returns the one that does. Of two that are ordered at the same time the longer
// one binds, whichever comes first. // I23
func (s *Stop) bind(k key, v stop) stop {
	end := s.EndBy(k.cluster)
	return s.unsaved.extend(k, v.orLonger(s.stored(k), end), end)
}

// longest is what bind would make bind.
func (s *Stop) longest(k key, v stop) stop {
	end := s.EndBy(k.cluster)
	return v.orLonger(s.unsaved.get(k), end).orLonger(s.stored(k), end)
}

// unsavedText says that a stop binds, although the store did not take it. done is what is true of its target.
func unsavedText(done string, err error) string {
	return done + " by this daemon alone, and until it restarts: the state could not be saved, so order it" +
		" at every other fenced that shares the store, too: " + err.Error()
}

// save stores an unsaved stop, unless it was ended or replaced meanwhile, or a longer one is stored. It returns the stop
// that then binds, or v after an error.
func (s *Stop) save(ctx context.Context, k key, v stop) (binds stop, err error) {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	if err := s.lock(ctx); err != nil {
		return v, err
	}
	defer s.saving.Release(1)
	switch {
	case s.unsaved.get(k) != v: // it was ended or replaced
	case k.node == "":
		err = s.Change(ctx, k.cluster, func(r *state.Cluster) {
			v := v.orLonger(pauseOf(*r), s.EndBy(k.cluster))
			r.Paused, r.PausedBy, r.PausedReason, r.PausedAt, r.PausedUntil = true, v.by, v.reason, v.at, v.until
		})
	default:
		err = s.changeHold(ctx, k, false, func(h *state.Hold) bool {
			v := v.orLonger(holdOf(*h), s.EndBy(k.cluster))
			// The time of an earlier release stays: runs before it do not count.
			*h = state.Hold{Cluster: k.cluster, Node: k.node, By: v.by, Reason: v.reason, At: v.at, Until: v.until, Selector: v.selector, ReleasedAt: h.ReleasedAt}
			return true
		})
	}
	if err != nil {
		return v, err
	}
	s.unsaved.drop(k, v)
	if stored := s.stored(k); stored.active(s.EndBy(k.cluster)) {
		return stored, nil
	}
	return v, nil
}

// lock waits until the caller may change stops, but no longer than a person should wait. The one
// who has the lock may be waiting for a store that hangs.
func (s *Stop) lock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	if err := s.saving.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait until another change is stored: %w", err)
	}
	return nil
}

const syncEvery = time.Second // between two looks at the pause file, and two attempts to save

// Run watches the pause file, saves what could not be saved, and ends what is over, until ctx
// ends. It does not report a failure of the store, because it tries again every second.
func (s *Stop) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { s.watchFile(ctx) })
	live.Every(ctx, syncEvery, nil, func() {
		s.syncUnsaved(ctx)
		s.endPauses(ctx)
		// When the pause file went away is stored, so that the quiet period survives a restart.
		if _, ended := s.file.look(time.Now()); s.Record(state.AllClusters).ResumedAt.Before(ended) {
			_ = s.Change(ctx, state.AllClusters, func(r *state.Cluster) { r.ResumedAt = times.Later(r.ResumedAt, ended.UTC()) })
		}
		s.endHolds(ctx)
	})
	watching.Wait()
	return nil
}

// watchFile reports when the pause file appears or goes away, and wakes the clusters. The gates
// look at the file themselves. watchFile does no other I/O: the store may hang. // I23
func (s *Stop) watchFile(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	last := ""
	for {
		why, _ := s.file.look(time.Now())
		if why != last {
			message := why
			if why == "" {
				message = "the pause file is gone; the quiet period begins"
			}
			last = why
			s.opt.Emit(event.Event{Type: event.Ordered, Message: message})
			s.clusters.wake(state.AllClusters)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// syncUnsaved saves the unsaved stops, and ends those whose time is over.
func (s *Stop) syncUnsaved(ctx context.Context) {
	unsaved := s.unsaved.all()
	for _, k := range slices.SortedFunc(maps.Keys(unsaved), compareKeys) {
		v := unsaved[k]
		switch {
		case v.active(s.EndBy(k.cluster)):
			_, _ = s.save(ctx, k, v)
			continue
		case k.node == "":
			s.clusters.beQuiet(k.cluster, s.clocks.endedAt(v.until))
			s.unsaved.drop(k, v)
		default:
			s.unsaved.drop(k, v)
			s.opt.Emit(k.holdOver(v.by))
			s.clusters.wake(k.cluster)
		}
	}
}

// endPauses stores which pauses are over, and begins the quiet period. Of several instances only
// the first one reports it. // I16, I23
func (s *Stop) endPauses(ctx context.Context) {
	for _, name := range append(slices.Sorted(maps.Keys(s.clusters.All())), state.AllClusters) {
		now := s.EndBy(name)
		over := func(v stop) bool { return (v != stop{}) && !v.active(now) }
		if !over(pauseOf(s.Record(name))) {
			continue
		}
		var ended stop
		err := s.Change(ctx, name, func(r *state.Cluster) {
			ended = stop{}
			if v := pauseOf(*r); over(v) {
				ended = v
				clearPause(r, s.clocks.endedAt(v.until))
			}
		})
		if err == nil && (ended != stop{}) {
			s.opt.Emit(event.Event{Type: event.Ordered, Cluster: name, Message: "the pause by " + ended.by + " is over; the quiet period begins"})
		}
	}
}

const maxUnread = 500 // bytes of the text about unreadable records

// corruptRecords are the records of pauses, holds and freezes that exist and cannot be read.
// Nobody knows what they forbid, so everything is paused. Hosts that are off still come
// back. // I20, I23
type corruptRecords struct {
	mu   sync.Mutex
	errs map[state.Kind]error
}

// note records the result of reading the records of a kind. It reports whether that changed
// anything. If the store did not answer, nothing changes.
func (c *corruptRecords) note(kind state.Kind, err error) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, had := c.errs[kind]
	switch {
	case err == nil:
		delete(c.errs, kind)
		return had
	case errors.Is(err, state.ErrUnreadable):
		c.errs[kind] = err
		return !had || old.Error() != err.Error()
	}
	return false
}

// NoteUnread records the result of reading the records of a kind. It returns err if the store
// did not answer at all. When all records can be read again, the quiet period begins. // I16
func (s *Stop) NoteUnread(kind state.Kind, err error) error {
	if s.corrupt.note(kind, err) {
		ev := event.Event{Type: event.Failed, Message: s.Corrupt()}
		if ev.Message == "" {
			ev = event.Event{Type: event.Internal, Message: "every record of a pause, hold or freeze can be read again; the quiet period begins"}
		}
		s.clusters.beQuiet(state.AllClusters, time.Now())
		s.opt.Emit(ev)
		s.clusters.wake(state.AllClusters)
	}
	if err != nil && !errors.Is(err, state.ErrUnreadable) {
		return err
	}
	return nil
}

// Corrupt returns why everything is paused because of unreadable records. It is "" if there
// are none.
func (s *Stop) Corrupt() string {
	c := s.corrupt
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errs) == 0 {
		return ""
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(c.errs)) {
		texts = append(texts, strings.ReplaceAll(c.errs[kind].Error(), "\n", "; "))
	}
	return "everything is paused, because a record of a pause, hold or freeze cannot be read: " + bmc.Printable(strings.Join(texts, "; "), maxUnread)
}
