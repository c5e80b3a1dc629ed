package live

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

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
