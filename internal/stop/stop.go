package stop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

const (
	syncEvery = time.Second     // between two looks at the pause file, and two tries to save
	saveTime  = 5 * time.Second // for a person's stop, which binds before it is saved
)

// Cluster is what a Stop asks of a cluster, and tells it.
type Cluster interface {
	// Clock is the API server's clock minus this host's where the two differ by more than
	// is allowed, else 0. seen says whether the cluster was seen whole of late: before
	// that nobody knows whether this host's clock is right.
	Clock() (skew time.Duration, seen bool)
	// BeQuiet begins a quiet period at a time. // I16
	BeQuiet(from time.Time)
	// Wake makes the cluster ask again at once: a stop began or ended.
	Wake()
}

// Options is what a Stop is made from.
type Options struct {
	Store state.Store
	Emit  func(event.Event)
	// PauseFile pauses everything while it exists; empty: none is looked for.
	PauseFile string
}

// Stop is every stop of one daemon. Make it with New, then Attach each cluster before
// anything else is called.
type Stop struct {
	opt      Options
	file     *pauseFile
	clusters map[string]Cluster
	records  *state.Table[state.Cluster] // pauses, and what else people ordered for a cluster
	holds    *state.Table[state.Hold]    // quarantines among them
	corrupt  *corruptRecords
	clock    jumpTolerantClock         // by which stops end,
	behind   atomic.Pointer[time.Time] // and when an API server's last held that back
	saving   *semaphore.Weighted       // one change of a stop at a time; held during I/O

	mu      sync.Mutex
	waiting map[key]stop // those that the store has not taken yet
}

// New loads the stops. An error means that the store could not be asked; records that
// cannot be read pause everything instead. // I20
func New(ctx context.Context, opt Options) (*Stop, error) {
	s := &Stop{
		opt: opt, file: &pauseFile{path: opt.PauseFile}, clusters: map[string]Cluster{}, corrupt: newCorruptRecords(),
		saving: semaphore.NewWeighted(1), waiting: map[key]stop{},
	}
	s.records = state.NewClusters(s.recordChanged)
	s.holds = state.NewHolds(func(h state.Hold) { s.wake(h.Cluster) })
	if err := s.NoteUnread(state.KindCluster, s.records.Load(ctx, opt.Store)); err != nil {
		return nil, fmt.Errorf("load the state of the clusters: %w", err)
	}
	if err := s.NoteUnread(state.KindHold, s.holds.Load(ctx, opt.Store)); err != nil {
		return nil, fmt.Errorf("load holds: %w", err)
	}
	return s, nil
}

// Attach adds a cluster. It must not be called after Run.
func (s *Stop) Attach(name string, c Cluster) { s.clusters[name] = c }

// Load takes in what other instances have stored. Records that are there and cannot be
// read are no error: they pause everything. // I20
func (s *Stop) Load(ctx context.Context) error {
	return errors.Join(
		s.NoteUnread(state.KindCluster, s.records.Load(ctx, s.opt.Store)),
		s.NoteUnread(state.KindHold, s.holds.Load(ctx, s.opt.Store)),
	)
}

// Why says why nothing destructive may be done to a Node: everything is paused, or the
// Node is held. It is "" when neither is so. // I23
func (s *Stop) Why(cluster, node string) string {
	if why := s.Paused(cluster); why != "" {
		return why
	}
	return s.Held(cluster, node)
}

// Record is what people ordered for a cluster, or for all, as it was last stored.
func (s *Stop) Record(cluster string) state.Cluster {
	if r, known := s.records.Get(state.Cluster{Name: cluster}.Key()); known {
		return r
	}
	return state.Cluster{Name: cluster}
}

// Change stores a change of a cluster's record, on top of whatever another instance has
// made of it. Nothing changes in memory when the store refuses.
func (s *Stop) Change(ctx context.Context, cluster string, change func(*state.Cluster)) error {
	_, err := s.records.Update(ctx, s.opt.Store, state.Cluster{Name: cluster}.Key(), func(r state.Cluster, _ bool) (state.Cluster, bool) {
		r.Name = cluster
		change(&r)
		return r, true
	})
	return err
}

// recordChanged makes a stored record felt: it may have ended a pause.
func (s *Stop) recordChanged(r state.Cluster) {
	s.beQuiet(r.Name, r.ResumedAt)
	s.wake(r.Name)
}

// named calls f for one cluster, or for all.
func (s *Stop) named(cluster string, f func(Cluster)) {
	for name, c := range s.clusters {
		if cluster == state.AllClusters || cluster == name {
			f(c)
		}
	}
}

func (s *Stop) beQuiet(cluster string, from time.Time) {
	s.named(cluster, func(c Cluster) { c.BeQuiet(from) })
}

func (s *Stop) wake(cluster string) { s.named(cluster, Cluster.Wake) }

// Run watches the pause file, saves what could not be saved, and ends what is over, until
// ctx ends.
func (s *Stop) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.watchFile(ctx) })
	both.Go(func() { s.runSync(ctx) })
	both.Wait()
	return nil
}

// watchFile tells of the pause file and makes it felt at once; the gates look at it
// by themselves. It does no other I/O: the store may hang. // I23
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
			s.wake(state.AllClusters)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// runSync brings stops and store together every second. A failure is no news: it is tried
// again.
func (s *Stop) runSync(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.syncWaiting(ctx)
		s.endPauses(ctx)
		s.storeFileEnd(ctx, time.Now())
		s.endHolds(ctx)
	}
}
