// Package logging writes the log of the daemon: to systemd's journal with a priority and
// searchable fields if stderr is the journal, and as lines of JSON to stderr elsewhere. No
// reader of the log can hold up who logs.
package logging

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/wire"
)

// New makes the logger of the process, and its queue. It writes what has the level or is
// worse; the level may be changed at any time. Sync of the logger ends the process well: it
// waits a little for the last lines.
func New(level zapcore.LevelEnabler) (*zap.Logger, *Queue) {
	if in, err := journal.StderrIsJournalStream(); err == nil && in {
		if sender, err := dialJournal(journalSocket); err == nil {
			return newLogger(level, newJournalEncoder(), sender.send)
		}
	}
	return newLogger(level, jsonEncoder(), writeJSON(os.Stderr))
}

func jsonEncoder() zapcore.Encoder {
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return zapcore.NewJSONEncoder(cfg)
}

// writeJSON writes lines without what a terminal would obey: much in them is of BMCs and
// clusters.
func writeJSON(f *os.File) func([]byte) {
	return func(line []byte) {
		_, _ = f.Write(wire.EscapeJSON(line)) // there is nowhere to complain
	}
}

// newLogger writes entries through a queue.
func newLogger(level zapcore.LevelEnabler, enc zapcore.Encoder, write func([]byte)) (*zap.Logger, *Queue) {
	gap := func(lost int) []byte {
		line, err := enc.Clone().EncodeEntry(zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Now(),
			Message: fmt.Sprintf("%d lines of this log are missing here: nobody took them in time, and fencing does not wait for that", lost)}, nil)
		if err != nil {
			return nil // of an entry without fields: it cannot be
		}
		return line.Bytes()
	}
	q := newQueue(write, gap)
	less := zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l < zapcore.WarnLevel && level.Enabled(l) })
	more := zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= zapcore.WarnLevel && level.Enabled(l) })
	return zap.New(zapcore.NewTee(
		zapcore.NewCore(enc, lane{q, maxQueued / 2}, less),
		zapcore.NewCore(enc.Clone(), lane{q, maxQueued}, more),
	)), q
}

const (
	// maxQueued bounds the lines that wait to be taken, in bytes. Lines below a warning have
	// half of it: whoever reads the log later misses those first.
	maxQueued = 4 << 20
	// flushTime bounds what the end of the process waits for its last lines.
	flushTime = 2 * time.Second
)

// Queue keeps log lines until a goroutine of its own has written them. Nobody who logs
// waits for a journal that is full, or for a reader of stderr that has stopped: what does
// not fit is dropped and counted.
type Queue struct {
	write func(line []byte)     // blocks until the line is taken
	gap   func(lost int) []byte // the line that says how many are missing

	mu     sync.Mutex
	lines  [][]byte
	bytes  int             // of lines, and of those that are being written
	lost   int             // since the last line that said so
	total  int             // of lost
	empty  []chan struct{} // closed once bytes is 0
	wakeUp chan struct{}
}

// newQueue starts a queue; its goroutine lives as long as the process.
func newQueue(write func([]byte), gap func(int) []byte) *Queue {
	q := &Queue{write: write, gap: gap, wakeUp: make(chan struct{}, 1)}
	go q.run()
	return q
}

// Lost is how many lines were dropped since the start.
func (q *Queue) Lost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// lane is the queue for lines that may fill it up to a limit; it implements
// zapcore.WriteSyncer.
type lane struct {
	*Queue
	limit int
}

var _ zapcore.WriteSyncer = lane{}

// Write takes a copy of a line, or drops it. It never waits.
func (l lane) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+len(line) > l.limit {
		l.lost++
		l.total++
	} else {
		l.lines = append(l.lines, bytes.Clone(line))
		l.bytes += len(line)
	}
	select {
	case l.wakeUp <- struct{}{}:
	default: // it looks again anyway
	}
	return len(line), nil
}

// Sync waits until all lines are written, for flushTime at most.
func (q *Queue) Sync() error {
	q.mu.Lock()
	if q.bytes == 0 {
		q.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	q.empty = append(q.empty, done)
	q.mu.Unlock()
	select {
	case <-done:
	case <-time.After(flushTime): // nobody reads them: there is nothing left to try
	}
	return nil
}

func (q *Queue) run() {
	for range q.wakeUp {
		for _, line := range q.take() {
			q.write(line)
			q.written(len(line))
		}
	}
}

// take gives the lines that wait. If some are missing after them, a line says so: it is
// made only now that there is room again.
func (q *Queue) take() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines := q.lines
	q.lines = nil
	if q.lost > 0 {
		line := q.gap(q.lost)
		lines, q.lost = append(lines, line), 0
		q.bytes += len(line)
	}
	return lines
}

func (q *Queue) written(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes -= n; q.bytes > 0 {
		return
	}
	for _, done := range q.empty {
		close(done)
	}
	q.empty = nil
}
