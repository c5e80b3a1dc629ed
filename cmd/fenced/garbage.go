package main

import (
	"context"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
)

// gcPercent trades a little CPU for memory: most of what the daemon allocates is
// what the API server sent, dropped as soon as it is trimmed. GOGC overrules it.
const gcPercent = 50

// When many runs start together, the collection of garbage takes a quarter of the daemon's CPU
// time, and every host waits for it. So then more garbage may lie about for a short time. It is
// bounded in bytes, whatever the size of the cluster: the daemon needs more than that when it
// starts.
const (
	manyStarts    = 4 // within manyWithin
	manyWithin    = time.Second
	moreGarbage   = 24 << 20 // bytes
	moreFor       = 5 * time.Second
	liveHeapBytes = "/gc/heap/live:bytes" // after the last collection
)

// garbage sets how much garbage may lie about before it is collected.
type garbage struct {
	set    func(percent int)
	live   func() uint64 // bytes
	starts chan struct{} // many runs have started

	mu     sync.Mutex
	recent []time.Time // of the last starts of runs, at most manyStarts
}

func newGarbage() *garbage {
	return &garbage{set: func(percent int) { debug.SetGCPercent(percent) }, live: liveHeap, starts: make(chan struct{}, 1)}
}

// record returns a record of events that also notes the starts of runs. That never waits.
func (g *garbage) record(next func(event.Event) error) func(event.Event) error {
	return func(e event.Event) error {
		if e.Type == event.Started {
			g.recordStart(time.Now())
		}
		return next(e)
	}
}

func (g *garbage) recordStart(now time.Time) {
	g.mu.Lock()
	g.recent = append(g.recent[max(0, len(g.recent)+1-manyStarts):], now)
	many := len(g.recent) == manyStarts && now.Sub(g.recent[0]) <= manyWithin
	g.mu.Unlock()
	if !many {
		return
	}
	select {
	case g.starts <- struct{}{}:
	default:
	}
}

// keep sets the percentage until ctx ends. To set it waits for a collection that is under way, so
// nobody but keep does that. GOGC overrules all of it.
func (g *garbage) keep(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.starts:
		}
		g.set(percentFor(g.live()))
		for many := true; many; {
			select {
			case <-ctx.Done():
				return nil
			case <-g.starts:
			case <-time.After(moreFor):
				many = false
			}
		}
		g.set(gcPercent)
	}
}

// percentFor allows moreGarbage more than usual, but at most as much as is live.
func percentFor(live uint64) int {
	return gcPercent + int(min(100*moreGarbage/max(live, 1), 100-gcPercent))
}

func liveHeap() uint64 {
	sample := []runtimemetrics.Sample{{Name: liveHeapBytes}}
	runtimemetrics.Read(sample)
	if sample[0].Value.Kind() != runtimemetrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
