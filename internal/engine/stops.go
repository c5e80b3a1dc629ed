package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

const (
	stopsEvery = time.Second     // between two looks at the file, and two tries to save
	saveTime   = 5 * time.Second // for a person's stop, which binds before it is saved
)

// stops are people's pauses and holds that the store has not taken: they bind all
// the same until the daemon ends, and are saved as soon as that is possible. // I23
type stops struct {
	saving ctxMutex // one change of them at a time; held during I/O

	mu     sync.Mutex
	pauses map[string]pause      // by cluster; state.AllClusters is all
	holds  map[string]state.Hold // by key
}

func newStops() *stops {
	return &stops{saving: newCtxMutex(), pauses: map[string]pause{}, holds: map[string]state.Hold{}}
}

// begin waits for the turn to change a stop, no longer than a person should.
func (s *stops) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	return s.saving.lock(ctx)
}

func (s *stops) pause(cluster string) (p pause, stands bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, stands = s.pauses[cluster]
	return p, stands
}

func (s *stops) setPause(cluster string, p pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses[cluster] = p
}

// dropPause forgets that very pause.
func (s *stops) dropPause(cluster string, p pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pauses[cluster] == p {
		delete(s.pauses, cluster)
	}
}

// hold is the one that waits to be saved for a Node; the zero value when none does.
func (s *stops) hold(cluster, node string) state.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[state.Hold{Cluster: cluster, Node: node}.Key()]
}

func (s *stops) setHold(h state.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[h.Key()] = h
}

// dropHold forgets that very hold.
func (s *stops) dropHold(h state.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds[h.Key()] == h {
		delete(s.holds, h.Key())
	}
}

// unsaved is what an order's answer says of a stop that the store refused: those that
// share the store hear of it only once it is saved. // I23
func unsaved(what string, err error) string {
	return what + " by this daemon alone, and until it restarts: the state could not be saved, so order it" +
		" at every other fenced that shares the store, too: " + err.Error()
}

// record is what people ordered for one cluster or for all, as it was last stored.
func (e *Engine) record(name string) state.Cluster {
	if c := e.clusters[name]; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.stored
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.global
}

// setRecord makes a stored record what the gates ask; an older one than is known
// changes nothing.
func (e *Engine) setRecord(r state.Cluster) {
	if r.Name == state.AllClusters {
		e.mu.Lock()
		if r.Version > e.global.Version {
			e.global = r
		}
		e.mu.Unlock()
	}
	for name, c := range e.clusters {
		if r.Name != state.AllClusters && r.Name != name {
			continue
		}
		c.mu.Lock()
		if r.Name == name && r.Version > c.stored.Version {
			c.stored = r
		}
		c.mu.Unlock()
		c.beQuiet(r.ResumedAt)
	}
	e.stirred(r.Name)
}

// stirred wakes all whom people's stops bind: they bind, or cease to, at once.
func (e *Engine) stirred(cluster string) {
	for name, c := range e.clusters {
		if cluster != state.AllClusters && cluster != name {
			continue
		}
		c.wake()
		c.mu.Lock()
		for _, w := range c.workers {
			w.inbox.kick()
		}
		c.mu.Unlock()
	}
}

// loadPauses takes in what other instances have stored about pauses and arming.
func (e *Engine) loadPauses(ctx context.Context) error {
	list, err := state.LoadClusters(ctx, e.opt.Store)
	for _, r := range list {
		if (r.Name == state.AllClusters || e.clusters[r.Name] != nil) && r.Version > e.record(r.Name).Version {
			e.setRecord(r)
		}
	}
	return err
}

// changeRecord stores a change of a cluster's record on top of whatever another
// instance has made of it; nothing changes in memory when the store refuses.
func (e *Engine) changeRecord(ctx context.Context, name string, f func(*state.Cluster)) error {
	const conflicts = 3
	have := e.record(name)
	for again := 0; ; again++ {
		next := have
		f(&next)
		saved, err := state.SaveCluster(ctx, e.opt.Store, next)
		if err == nil {
			e.setRecord(saved)
			return nil
		}
		if again == conflicts || !errors.Is(err, state.ErrConflict) && !errors.Is(err, state.ErrExists) {
			return err
		}
		if have, err = state.LoadCluster(ctx, e.opt.Store, name); err != nil {
			return err
		}
	}
}

// watchFile tells of the pause file and makes it felt at once; the gates look at it
// by themselves. It does no other I/O: the store may hang. // I23
func (e *Engine) watchFile(ctx context.Context) error {
	tick := time.NewTicker(stopsEvery)
	defer tick.Stop()
	told := ""
	for {
		why, _ := e.file.look(time.Now())
		if why != told {
			message := why
			if why == "" {
				message = "the pause file is gone; the quiet period begins"
			}
			told = why
			e.opt.Events.Emit(event.Event{Type: event.Ordered, Message: message})
			e.stirred(state.AllClusters)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// keepStops saves what could not be saved, and ends what is over, until ctx ends.
func (e *Engine) keepStops(ctx context.Context) error {
	tick := time.NewTicker(stopsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, name := range append(slices.Sorted(maps.Keys(e.clusters)), state.AllClusters) {
			e.keepPause(ctx, name, e.stopsEndBy(name))
		}
		e.keepResumed(ctx, time.Now())
		e.keepHolds(ctx)
	}
}

// keepPause saves a pause that waits for the store, or ends one that is over. A
// failure is no news: it is tried again. // I23
func (e *Engine) keepPause(ctx context.Context, name string, now time.Time) {
	if p, stands := e.stops.pause(name); stands && !p.over(now) {
		_ = e.savePause(ctx, name, p)
		return
	} else if stands {
		e.beQuiet(name, e.reached(p.until))
		e.stops.dropPause(name, p)
	}
	if p, stands := e.storedPause(name); !stands || !p.over(now) {
		return
	}
	var ended pause
	err := e.changeRecord(ctx, name, func(s *state.Cluster) {
		ended = pause{}
		if p, stands := pauseOf(*s); stands && p.over(now) { // unless another instance was faster
			ended = p
			resume(s, e.reached(p.until))
		}
	})
	if err == nil && ended != (pause{}) {
		e.opt.Events.Emit(event.Event{Type: event.Ordered, Cluster: name, Message: "the pause by " + ended.by + " is over; the quiet period begins"})
	}
}

// keepResumed makes the quiet period after the pause file survive a restart.
func (e *Engine) keepResumed(ctx context.Context, now time.Time) {
	_, ended := e.file.look(now)
	if ended.IsZero() || !e.record(state.AllClusters).ResumedAt.Before(ended) {
		return
	}
	// A failure is no news: it is tried again.
	_ = e.changeRecord(ctx, state.AllClusters, func(s *state.Cluster) { s.ResumedAt = later(s.ResumedAt, ended.UTC()) })
}
