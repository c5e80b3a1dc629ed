package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// maxPending limits the entries that wait for the disk.
	maxPending = 4096
	// maxFile is the size at which a new file starts. A start of the daemon reads
	// the whole last file.
	maxFile = 64 << 20
)

// hangTime is how long a write may take before nobody waits for it: the deciding
// goroutine must not block for each of many entries. Tests use a longer time, for
// a shared disk.
var hangTime = 5 * time.Second

// ErrFull means that too many entries already wait for the disk.
var ErrFull = errors.New("the audit log cannot keep up")

// ErrHangs means that a write takes longer than hangTime.
var ErrHangs = errors.New("the disk of the audit log does not answer")

// ErrClosed means that the log was closed.
var ErrClosed = errors.New("the audit log is closed")

// Options configure a log.
type Options struct {
	Origin Origin
	// OnError is called with the error when writing starts to fail, and with nil
	// when it works again. It must not block.
	OnError func(error)
	// MaxFile is the size at which a new file starts; 0 is 64 MiB.
	MaxFile int64
}

// Log is an open audit log. Its methods are safe for concurrent use.
type Log struct {
	opt  Options
	path string
	wake chan struct{} // signals that entries are pending, or that the log is closed
	done chan struct{} // closed after the writer has ended

	mu      sync.Mutex
	pending []pendingEntry
	head    Head      // durable
	began   time.Time // start of the write in progress; zero if there is none
	closed  bool
	failed  uint64 // number of entries that could not be written since the start
	trouble error  // error of the last write; nil if it succeeded
	since   time.Time

	// Only the writer uses the following fields.

	file  *os.File
	size  int64 // size of the durable content
	stale bool  // the file may contain more than size
	// renamed: the file has its name, but not yet durably.
	renamed bool
	lost    uint64 // number of entries that could not be written and are recorded in an entry Lost
}

// pendingEntry is an entry to write; done is nil if nobody waits for it.
type pendingEntry struct {
	entry Entry
	done  chan<- appendResult
}

type appendResult struct {
	head Head
	err  error
}

// Append writes an entry and returns after it is durable. Entries that are
// appended at the same time share one fsync. After an error the entry is not in
// the log, except if ctx ended first: then it may be written later.
func (l *Log) Append(ctx context.Context, e Entry) (Head, error) {
	done := make(chan appendResult, 1)
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

// Add queues an entry and does not wait. It counts an entry that it cannot write;
// an entry Lost records the number.
func (l *Log) Add(e Entry) { _ = l.enqueue(e, nil) } // enqueue counts errors

func (l *Log) enqueue(e Entry, done chan<- appendResult) error {
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
		l.pending = append(l.pending, pendingEntry{e, done})
		l.wakeWriter()
		return nil
	}
	l.failed++
	return err
}

func (l *Log) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Head is the position of the last durable entry.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Failures is the number of entries that could not be written.
func (l *Log) Failures() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Trouble returns since when, and why, the log cannot be written; a nil error if
// the last write succeeded.
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

// Retry writes the entries that are missing, if any. Without it, a log that could
// not be written stays in trouble until the next event.
func (l *Log) Retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeWriter()
}

// Export saves the head next to the log, where the next start compares it, and
// returns it, to be stored elsewhere.
func (l *Log) Export() (Head, error) {
	h := l.Head()
	return h, saveHead(l.path, h)
}

// Close writes the pending entries, saves the head and ends the log. It does not
// wait for a hanging disk: ErrHangs.
func (l *Log) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.wakeWriter()
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

// writeLoop writes all pending entries in one batch: the group commit. It records
// missing entries as soon as writing works.
func (l *Log) writeLoop() {
	defer close(l.done)
	for range l.wake {
		l.mu.Lock()
		batch, closed, head, missed := l.pending, l.closed, l.head, l.failed
		l.pending, l.began = nil, time.Now()
		l.mu.Unlock()
		if len(batch) > 0 || missed > l.lost {
			l.writeBatch(batch, head, missed)
		}
		l.mu.Lock()
		l.began = time.Time{}
		l.mu.Unlock()
		if closed {
			return
		}
	}
}

// writeBatch writes a batch and notifies those who wait.
func (l *Log) writeBatch(batch []pendingEntry, head Head, missed uint64) {
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
		l.opt.OnError(err)
	}
	for i, w := range batch {
		if w.done == nil {
			continue
		}
		if err != nil {
			w.done <- appendResult{err: err}
			continue
		}
		w.done <- appendResult{head: heads[len(heads)-len(batch)+i]}
	}
}

// write makes a batch durable and returns the head after each of its lines. After
// an error the file contains none of it.
func (l *Log) write(batch []pendingEntry, head Head, missed uint64) ([]Head, error) {
	head, err := l.checkName(head)
	if err == nil {
		err = l.discardFailed()
	}
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(batch)+1)
	if missed > l.lost { // record that entries are missing
		entries = append(entries, Entry{At: time.Now().UTC(), Type: Lost, Message: fmt.Sprintf("%d entries could not be written", missed-l.lost)})
	}
	for _, w := range batch {
		entries = append(entries, w.entry)
	}
	if l.size > l.opt.MaxFile {
		head, err = l.rotate(head)
	}
	if err == nil {
		err = l.syncName()
	}
	if err != nil {
		return nil, err
	}
	lines, heads, err := chain(head, entries)
	if err == nil {
		err = l.appendLines(lines)
	}
	if err != nil {
		return nil, err
	}
	l.lost = missed
	return heads, nil
}

// chain returns the lines of entries that follow head, and the head after each.
func chain(head Head, entries []Entry) (lines []byte, heads []Head, err error) {
	for _, e := range entries {
		e.Seq = head.Seq + 1
		payload, err := e.encode()
		if err != nil {
			return nil, nil, err
		}
		lines, head = appendLine(lines, head, payload)
		heads = append(heads, head)
	}
	return lines, heads, nil
}

// appendLines appends lines and waits until they are durable. If some fail, it
// removes them all: no caller was told that they were written.
func (l *Log) appendLines(lines []byte) error {
	l.stale = true
	_, err := l.file.Write(lines)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("append to the audit log: %w", err), l.discardFailed())
	}
	l.size, l.stale = l.size+int64(len(lines)), false
	return nil
}

// discardFailed removes what a failed write has left.
func (l *Log) discardFailed() error {
	if !l.stale {
		return nil
	}
	if err := l.file.Truncate(l.size); err != nil {
		return fmt.Errorf("remove a failed write from the audit log: %w", err)
	}
	l.stale = false
	return nil
}

// rotate ends a large file. The next file starts with an entry that follows its
// last one, and gets the log's name after that entry is durable: the name always
// refers to a log.
func (l *Log) rotate(head Head) (Head, error) {
	first := l.opened()
	first.Message = continued
	return l.startFile(head, first, func(name string) error {
		err := os.Link(l.path, rotatedName(l.path, head.Seq))
		if err == nil || errors.Is(err, os.ErrExist) { // done by an earlier attempt
			err = os.Rename(name, l.path)
		}
		return err
	})
}

// rotatedName is the name of a file that was rotated after the entry seq.
func rotatedName(path string, seq uint64) string { return fmt.Sprintf("%s.%012d", path, seq) }

// startFile continues in another file, whose first entry is first. take gives
// that file the log's name after the entry is durable.
func (l *Log) startFile(head Head, first Entry, take func(name string) error) (Head, error) {
	lines, heads, err := chain(head, []Entry{first})
	if err != nil {
		return Head{}, err
	}
	name := l.path + ".new"
	_ = os.Remove(name) // left by an earlier attempt; it may even be a log by now
	next, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return Head{}, fmt.Errorf("start a new file of the audit log: %w", err)
	}
	err = lock(next)
	if err == nil {
		_, err = next.Write(lines)
	}
	if err == nil {
		err = next.Sync()
	}
	if err == nil {
		err = take(name)
	}
	if err != nil {
		return Head{}, errors.Join(fmt.Errorf("start a new file of the audit log: %w", err), next.Close())
	}
	_ = l.file.Close() // its content is durable
	l.file, l.size, l.stale, l.renamed = next, int64(len(lines)), false, true
	l.mu.Lock()
	l.head = heads[0]
	l.mu.Unlock()
	return heads[0], nil
}

// syncName makes the name of a new file durable before anything else is written
// to it.
func (l *Log) syncName() error {
	if !l.renamed {
		return nil
	}
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		return fmt.Errorf("start a new file of the audit log: %w", err)
	}
	l.renamed = false
	return nil
}

// opened is the first entry of a file or of a start.
func (l *Log) opened() Entry {
	return Entry{At: time.Now().UTC(), Type: Opened, Origin: &l.opt.Origin}
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
