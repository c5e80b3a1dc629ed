package stop

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

const syncEvery = time.Second // between two looks at the pause file, and two attempts to save

// Run watches the pause file, saves what could not be saved, and ends what is over, until ctx
// ends.
func (s *Stop) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.watchFile(ctx) })
	both.Go(func() { s.runSync(ctx) })
	both.Wait()
	return nil
}

// watchFile reports when the pause file appears or goes away, and wakes the clusters. The gates
// look at the file themselves. watchFile does no other I/O: the store may hang. // I23
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
			s.clusters.wake(state.AllClusters)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// runSync reconciles the stops in memory with the store every second. It does not report a
// failure, because it tries again.
func (s *Stop) runSync(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.syncUnsaved(ctx)
		s.endPauses(ctx)
		_, ended := s.file.look(time.Now())
		s.pauses.saveFileEnd(ctx, ended)
		s.holds.endOver(ctx, s.emitHoldOver)
	}
}

// syncUnsaved saves the unsaved stops, and ends those whose time is over.
func (s *Stop) syncUnsaved(ctx context.Context) {
	unsaved := s.unsaved.all()
	for _, k := range slices.SortedFunc(maps.Keys(unsaved), compareKeys) {
		v := unsaved[k]
		switch {
		case v.active(s.EndBy(k.cluster)):
			_ = s.save(ctx, k, v)
			continue
		case k.node == "":
			s.clusters.beQuiet(k.cluster, s.clocks.endedAt(v.until))
			s.unsaved.drop(k, v)
		default:
			s.unsaved.drop(k, v)
			s.emitHoldOver(k, v.by)
		}
	}
}

// endPauses stores which pauses are over, and begins the quiet period. // I16, I23
func (s *Stop) endPauses(ctx context.Context) {
	for _, name := range append(s.clusters.names(state.AllClusters), state.AllClusters) {
		if ended := s.pauses.endOver(ctx, name); (ended != stop{}) {
			s.opt.Emit(event.Event{Type: event.Ordered, Cluster: name, Message: "the pause by " + ended.by + " is over; the quiet period begins"})
		}
	}
}
