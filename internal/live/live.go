// Package live holds what a reload adds and removes while the daemon runs: maps that are read
// without a lock, tasks that begin and end one by one, and the loops of tasks.
package live

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Map is a small map that is read often and changed rarely. A change replaces the whole map, so
// whoever reads it needs no lock, and what All returned never changes. The zero value is empty.
type Map[V any] struct {
	writing sync.Mutex // held during a change
	now     atomic.Pointer[map[string]V]
}

// All returns every value by its name. The caller must not change the map.
func (m *Map[V]) All() map[string]V {
	if now := m.now.Load(); now != nil {
		return *now
	}
	return nil
}

// Get returns the value of a name; the zero value if there is none.
func (m *Map[V]) Get(name string) V { return m.All()[name] }

// Put adds or replaces a value.
func (m *Map[V]) Put(name string, value V) {
	m.change(func(next map[string]V) { next[name] = value })
}

// Delete removes the value of a name, if there is one.
func (m *Map[V]) Delete(name string) {
	m.change(func(next map[string]V) { delete(next, name) })
}

func (m *Map[V]) change(change func(next map[string]V)) {
	m.writing.Lock()
	defer m.writing.Unlock()
	next := maps.Clone(m.All())
	if next == nil {
		next = map[string]V{}
	}
	change(next)
	m.now.Store(&next)
}

// Tasks runs functions that have names. Each can begin and end while the others run. The zero
// value has none.
type Tasks struct {
	mu    sync.Mutex
	tasks map[string]*task
	group *errgroup.Group // nil before Run
	ctx   context.Context // of the group
	over  bool            // no task begins any more
}

type task struct {
	run  func(context.Context) error
	stop context.CancelFunc // nil before the task has begun
	done chan struct{}      // closed when it has returned
}

// Begin adds a task, which runs until Run or End ends its context. The task begins at once or, before
// Run, with that. After the end of Run it does not begin. No task may have the name yet.
func (t *Tasks) Begin(name string, run func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tasks == nil {
		t.tasks = map[string]*task{}
	}
	t.tasks[name] = &task{run: run, done: make(chan struct{})}
	if t.group != nil && !t.over {
		t.start(t.tasks[name])
	}
}

// start begins a task. The caller holds t.mu.
func (t *Tasks) start(one *task) {
	ctx, stop := context.WithCancel(t.ctx)
	one.stop = stop
	t.group.Go(func() error {
		defer close(one.done)
		defer stop()
		return one.run(ctx)
	})
}

// End ends the context of a task, and returns when the task has returned. A task that has not begun
// never begins.
func (t *Tasks) End(name string) {
	t.mu.Lock()
	one := t.tasks[name]
	delete(t.tasks, name)
	t.mu.Unlock()
	if one == nil || one.stop == nil {
		return
	}
	one.stop()
	<-one.done
}

// Run runs the tasks until ctx ends, or until one of them returns an error, which ends all. It
// returns that error when all have returned. Call it once.
func (t *Tasks) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	t.mu.Lock()
	t.group, t.ctx = group, ctx
	for _, one := range t.tasks {
		t.start(one)
	}
	t.mu.Unlock()
	<-ctx.Done()
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	return group.Wait()
}

// Signal wakes whoever receives from a channel with a buffer of one. It never waits: one signal that is pending is enough.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Every calls do after each d, and at each signal of wake, until ctx ends. A nil wake gives none.
func Every(ctx context.Context, d time.Duration, wake <-chan struct{}, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
		do()
	}
}

// Repeat calls do at once, at each signal of wake, and when do has said that it is due again, until ctx ends. A zero time
// is only at the next signal.
func Repeat(ctx context.Context, wake <-chan struct{}, do func() (due time.Time)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
		if due := do(); !due.IsZero() {
			timer.Reset(max(time.Millisecond, time.Until(due)))
		}
	}
}
