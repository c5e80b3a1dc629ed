package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// maxPending bounds what waits for the disk.
	maxPending = 4096
	// maxFile is when a file is put aside: a start reads the last one whole.
	maxFile = 64 << 20
)

// hangTime is after which a write that has not ended is not waited for: who decides must
// not stand still for each of many entries. Tests wait longer, for a disk that others use.
var hangTime = 5 * time.Second

// ErrFull means that too much waits for the disk already.
var ErrFull = errors.New("the audit log cannot keep up")

// ErrHangs means that a write has begun long ago and does not end.
var ErrHangs = errors.New("the disk of the audit log does not answer")

// ErrClosed means that the log was closed.
var ErrClosed = errors.New("the audit log is closed")

// Options are how a log is opened.
type Options struct {
	Origin Origin
	// Tell is called when writing begins to fail, with the error, and with nil when it
	// works again. It must not block.
	Tell func(error)
	// MaxFile is the size at which a file is put aside; 0 is 64 MiB.
	MaxFile int64
}

// Log is an open audit log. All of its methods may be called at any time.
type Log struct {
	opt  Options
	path string
	wake chan struct{} // something is pending, or the log is closed
	done chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	pending []waiting
	head    Head      // durable
	began   time.Time // of the write that is under way; zero when none is
	closed  bool
	failed  uint64 // entries that could not be written, since the start
	trouble error  // of the last write; nil after one that worked
	since   time.Time

	// What follows is the writer's alone.

	file  *os.File
	size  int64 // of what is durable
	stale bool  // the file may hold more than size
	// renamed: the file has its name, which a crash may take from it.
	renamed bool
	lost    uint64 // entries that could not be written, as an entry tells
}

// waiting is an entry that is to be written; done is nil when nobody waits for it.
type waiting struct {
	entry Entry
	done  chan<- written
}

type written struct {
	head Head
	err  error
}

// Append writes an entry and returns once it is durable. Entries that are appended
// at the same time share one fsync. After an error the entry is not in the log,
// unless ctx ended first: then it may come to be.
func (l *Log) Append(ctx context.Context, e Entry) (Head, error) {
	done := make(chan written, 1)
	if err := l.enqueue(e, done); err != nil {
		return Head{}, err
	}
	select {
	case w := <-done:
		return w.head, w.err
	case <-ctx.Done():
		return Head{}, fmt.Errorf("wait for the audit log: %w", ctx.Err())
	}
}

// Add writes an entry soon, in its turn, and does not wait. What it cannot write
// is counted, and an entry Lost tells of it.
func (l *Log) Add(e Entry) { _ = l.enqueue(e, nil) } // enqueue has counted it

func (l *Log) enqueue(e Entry, done chan<- written) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := ErrFull
	switch {
	case l.closed:
		err = ErrClosed
	case done != nil && !l.began.IsZero() && time.Since(l.began) > hangTime:
		err = ErrHangs
	case len(l.pending) < maxPending:
		e.At = time.Now().UTC()
		l.pending = append(l.pending, waiting{e, done})
		l.poke()
		return nil
	}
	l.failed++
	return err
}

func (l *Log) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Head is the place of the last entry that is durable.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Failures is how many entries could not be written.
func (l *Log) Failures() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Trouble is since when, and why, the log cannot be written; nil when it can, as far
// as the last write tells.
func (l *Log) Trouble() (since time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.trouble != nil:
		return l.since, l.trouble
	case !l.began.IsZero() && time.Since(l.began) > hangTime:
		return l.began, ErrHangs
	}
	return time.Time{}, nil
}

// Retry writes what the log lacks, if anything: without it, a log that could not be
// written says so until the next event.
func (l *Log) Retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poke()
}

// Export remembers the head beside the log, where the next start compares it, and
// gives it, to be carried elsewhere.
func (l *Log) Export() (Head, error) {
	h := l.Head()
	return h, saveHead(l.path, h)
}

// Close writes what waits, remembers the head and ends the log. It does not wait for
// a disk that hangs: ErrHangs.
func (l *Log) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.poke()
	l.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(hangTime):
		return ErrHangs
	}
	if again {
		return nil
	}
	_, err := l.Export()
	return errors.Join(err, l.file.Close())
}

// writeLoop writes what is pending, all of it at once: that is the group commit.
// What is missing is told of as soon as that can be written.
func (l *Log) writeLoop() {
	defer close(l.done)
	for range l.wake {
		l.mu.Lock()
		batch, closed, head, missed := l.pending, l.closed, l.head, l.failed
		l.pending, l.began = nil, time.Now()
		l.mu.Unlock()
		if len(batch) > 0 || missed > l.lost {
			l.settle(batch, head, missed)
		}
		l.mu.Lock()
		l.began = time.Time{}
		l.mu.Unlock()
		if closed {
			return
		}
	}
}

// settle writes a batch and tells those who wait how it went.
func (l *Log) settle(batch []waiting, head Head, missed uint64) {
	heads, err := l.write(batch, head, missed)
	l.mu.Lock()
	turned := (err != nil) != (l.trouble != nil)
	if turned {
		l.since = time.Now().UTC()
	}
	l.trouble = err
	if err == nil {
		l.head = heads[len(heads)-1]
	} else {
		l.failed += uint64(len(batch))
	}
	l.mu.Unlock()
	if turned {
		l.opt.Tell(err)
	}
	for i, w := range batch {
		if w.done == nil {
			continue
		}
		if err != nil {
			w.done <- written{err: err}
			continue
		}
		w.done <- written{head: heads[len(heads)-len(batch)+i]}
	}
}
