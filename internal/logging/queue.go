package logging

import (
	"bytes"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

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
