package stop

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/state"
)

// pauseRecords are the stored records of the clusters, and one of all clusters: their pauses,
// and what else people ordered for them.
type pauseRecords struct {
	store  state.Store
	clocks *clocks
	table  *state.Table[state.Cluster]
}

func (p *pauseRecords) load(ctx context.Context) error { return p.table.Load(ctx, p.store) }

// record returns the record of a cluster, or of all clusters, as it was last stored.
func (p *pauseRecords) record(cluster string) state.Cluster {
	if r, known := p.table.Get(state.Cluster{Name: cluster}.Key()); known {
		return r
	}
	return state.Cluster{Name: cluster}
}

// pause returns the stored pause of a cluster, or of all clusters.
func (p *pauseRecords) pause(cluster string) stop { return pauseOf(p.record(cluster)) }

// change stores a change of a record, on top of what another instance may have stored. If the
// store refuses, nothing changes in memory.
func (p *pauseRecords) change(ctx context.Context, cluster string, change func(*state.Cluster)) error {
	_, err := p.table.Update(ctx, p.store, state.Cluster{Name: cluster}.Key(), func(r state.Cluster, _ bool) (state.Cluster, bool) {
		r.Name = cluster
		change(&r)
		return r, true
	})
	return err
}

// save stores a pause, unless a longer one is stored.
func (p *pauseRecords) save(ctx context.Context, cluster string, v stop) error {
	return p.change(ctx, cluster, func(r *state.Cluster) {
		v := v.orLonger(pauseOf(*r), p.clocks.endBy(cluster))
		r.Paused, r.PausedBy, r.PausedReason, r.PausedAt, r.PausedUntil = true, v.by, v.reason, v.at, v.until
	})
}

// resume stores that a person ended the pause at a time.
func (p *pauseRecords) resume(ctx context.Context, cluster string, at time.Time) error {
	return p.change(ctx, cluster, func(r *state.Cluster) { clearPause(r, at) })
}

// endOver stores that a pause has ended, if its time is over, and returns it. It returns the
// zero value if there was no such pause, or if another instance was faster. // I16, I23
func (p *pauseRecords) endOver(ctx context.Context, cluster string) stop {
	now := p.clocks.endBy(cluster)
	over := func(v stop) bool { return (v != stop{}) && !v.active(now) }
	if !over(p.pause(cluster)) {
		return stop{}
	}
	var ended stop
	err := p.change(ctx, cluster, func(r *state.Cluster) {
		ended = stop{}
		if v := pauseOf(*r); over(v) {
			ended = v
			clearPause(r, p.clocks.endedAt(v.until))
		}
	})
	if err != nil {
		return stop{}
	}
	return ended
}

// clearPause removes the pause from a record.
func clearPause(r *state.Cluster, at time.Time) {
	r.Paused, r.PausedBy, r.PausedReason, r.PausedAt, r.PausedUntil = false, "", "", time.Time{}, time.Time{}
	r.ResumedAt = later(r.ResumedAt, at)
}

// saveFileEnd stores when the pause file went away, so that the quiet period after it survives
// a restart. A zero time means that the file never went away.
func (p *pauseRecords) saveFileEnd(ctx context.Context, ended time.Time) {
	if ended.IsZero() || !p.record(state.AllClusters).ResumedAt.Before(ended) {
		return
	}
	_ = p.change(ctx, state.AllClusters, func(r *state.Cluster) { r.ResumedAt = later(r.ResumedAt, ended.UTC()) }) // runSync tries again
}
