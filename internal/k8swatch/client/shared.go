package client

import (
	"context"
	"sync"
	"time"
)

// sharedPatience is for how long a read may delay the next one of the same: a request that
// hangs must not make the others hang.
const sharedPatience = 50 * time.Millisecond

// sharedEvery is the least time between the beginnings of two reads of the same. When many look
// at once, those who ask in that time share the next read. Who looks alone never waits for it.
const sharedEvery = 10 * time.Millisecond

// SharedReads lets those who need the same answer at the same time share one read. A read
// answers only those who asked before it began. So each of them gets what a read of its own
// could have returned, and no rule about the age of a look changes. // I4, I22
type SharedReads struct {
	Patience time.Duration // sharedPatience, except in tests
	every    time.Duration

	mu      sync.Mutex
	next    map[string]*sharedRead // asked for, not begun
	running map[string]int         // how many reads of each key are in progress, or began just now
}

// sharedRead is one read, and those who wait for it.
type sharedRead struct {
	read    func(context.Context) (any, error)
	ctx     context.Context // ends when nobody waits any more
	cancel  context.CancelFunc
	waiting int           // guarded by the lock of SharedReads
	done    chan struct{} // closed when value and err are set
	value   any
	err     error
}

func NewSharedReads() *SharedReads {
	return &SharedReads{Patience: sharedPatience, every: sharedEvery, next: map[string]*sharedRead{}, running: map[string]int{}}
}

// ReadShared returns the result of a read that began after the call. All callers with the same
// key must give the same read, and must not change what it returns.
func ReadShared[T any](ctx context.Context, s *SharedReads, key string, read func(context.Context) (T, error)) (T, error) {
	r := s.join(key, func(ctx context.Context) (any, error) { return read(ctx) })
	defer s.leave(r)
	select {
	case <-r.done:
		value, _ := r.value.(T) // it can be nothing else
		return value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// join returns the next read of a key, which has not begun when join is called. It begins at
// once, or as soon as the one before it has ended and is not too new, or has taken too long.
func (s *SharedReads) join(key string, read func(context.Context) (any, error)) *sharedRead {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.next[key]
	if r == nil || r.waiting == 0 { // the latter was given up before it began
		r = &sharedRead{read: read, done: make(chan struct{})}
		r.ctx, r.cancel = context.WithCancel(context.Background()) // it does not end with one of several callers
		s.next[key] = r
		if s.running[key] == 0 {
			s.begin(key, r)
		} else {
			time.AfterFunc(s.Patience, func() { s.beginLate(key, r) })
		}
	}
	r.waiting++
	return r
}

// leave ends a read that nobody waits for any more.
func (s *SharedReads) leave(r *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.waiting--; r.waiting == 0 {
		r.cancel()
	}
}

// Waiting is how many wait for a read of a key that has not begun.
func (s *SharedReads) Waiting(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.next[key]; r != nil {
		return r.waiting
	}
	return 0
}

// beginLate begins a read whose predecessor takes long.
func (s *SharedReads) beginLate(key string, r *sharedRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next[key] == r {
		s.begin(key, r)
	}
}

// begin starts a read. From now on nobody can join it. s.mu is held.
func (s *SharedReads) begin(key string, r *sharedRead) {
	delete(s.next, key)
	s.running[key]++
	go s.run(key, r)
}

func (s *SharedReads) run(key string, r *sharedRead) {
	defer r.cancel()
	ctx, cancel := context.WithTimeout(r.ctx, RequestTimeout)
	defer cancel()
	began := time.Now()
	r.value, r.err = r.read(ctx)
	close(r.done)
	if rest := s.every - time.Since(began); rest > 0 {
		time.AfterFunc(rest, func() { s.end(key) })
		return
	}
	s.end(key)
}

// end begins the next read of a key, if somebody has asked for it.
func (s *SharedReads) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key]--; s.running[key] == 0 {
		delete(s.running, key)
	}
	if next := s.next[key]; next != nil {
		s.begin(key, next)
	}
}
