package stop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

// Options is what a Stop is made from.
type Options struct {
	Store state.Store
	Emit  func(event.Event)
	// PauseFile is the path of a file that pauses everything while it exists; "" is none.
	PauseFile string
}

// Stop knows every stop of one daemon. Make it with New, and Attach each cluster.
//
// The store's records (pauses, holds), the stops that it has not saved yet, the pause file, the
// unreadable records and the clocks are parts with a lock each. No part calls another one while
// it holds its lock.
type Stop struct {
	opt      Options
	clusters *clusters
	clocks   *clocks
	file     *pauseFile
	corrupt  *corruptRecords
	pauses   *pauseRecords
	holds    *holdRecords
	unsaved  *unsavedStops
	saving   *semaphore.Weighted // one change of a stop at a time; held during I/O
}

// New loads the stops. An error means that the store could not be read at all. If single
// records cannot be read, everything is paused instead. // I20
func New(ctx context.Context, opt Options) (*Stop, error) {
	s := &Stop{
		opt: opt, clusters: &clusters{}, file: &pauseFile{path: opt.PauseFile}, corrupt: newCorruptRecords(),
		unsaved: &unsavedStops{byKey: map[key]stop{}}, saving: semaphore.NewWeighted(1),
	}
	s.clocks = &clocks{clusters: s.clusters}
	s.pauses = &pauseRecords{store: opt.Store, clocks: s.clocks, table: state.NewClusters(s.recordChanged)}
	s.holds = &holdRecords{store: opt.Store, clocks: s.clocks, table: state.NewHolds(func(h state.Hold) { s.clusters.wake(h.Cluster) })}
	if err := s.NoteUnread(state.KindCluster, s.pauses.load(ctx)); err != nil {
		return nil, fmt.Errorf("load the state of the clusters: %w", err)
	}
	if err := s.NoteUnread(state.KindHold, s.holds.load(ctx)); err != nil {
		return nil, fmt.Errorf("load holds: %w", err)
	}
	return s, nil
}

// Attach adds a cluster. The stops of people that are on record bind it at once.
func (s *Stop) Attach(name string, c Cluster) { s.clusters.Put(name, c) }

// Detach removes a cluster. What people have stopped there stays on record.
func (s *Stop) Detach(name string) { s.clusters.Delete(name) }

// Load reads what other instances have stored. Records that exist and cannot be read are no
// error: they pause everything. // I20
func (s *Stop) Load(ctx context.Context) error {
	return errors.Join(
		s.NoteUnread(state.KindCluster, s.pauses.load(ctx)),
		s.NoteUnread(state.KindHold, s.holds.load(ctx)),
	)
}

// Why returns why nothing destructive may be done to a target: everything is paused, or a person
// holds its Node or its Machine. It is "" if neither is true. // I23
func (s *Stop) Why(cluster string, names ...string) string {
	if why := s.Paused(cluster); why != "" {
		return why
	}
	return s.Held(cluster, names...)
}

// OfCluster lists what is stopped under the name of one cluster: its own pause, its holds and its quarantines. // I23
func (s *Stop) OfCluster(cluster string) (list []string) {
	for _, p := range s.pausesOf(cluster) {
		if p.active(s.EndBy(cluster)) {
			list = append(list, pauseText(cluster, p))
		}
	}
	for _, h := range s.Holds(cluster) {
		list = append(list, h.Node+" is held by "+h.By+untilText(h.Until)+": "+h.Reason)
	}
	return list
}

// Record returns what people ordered for a cluster, or for all clusters, as it was last stored.
func (s *Stop) Record(cluster string) state.Cluster { return s.pauses.record(cluster) }

// Change stores a change of a cluster's record, on top of what another instance may have
// stored. If the store refuses, nothing changes in memory.
func (s *Stop) Change(ctx context.Context, cluster string, change func(*state.Cluster)) error {
	return s.pauses.change(ctx, cluster, change)
}

// recordChanged applies a cluster's record that was stored: it may have ended a pause, or armed
// the cluster.
func (s *Stop) recordChanged(r state.Cluster) {
	s.clusters.beQuiet(r.Name, r.ResumedAt)
	if r.Armed {
		s.clusters.beQuiet(r.Name, r.ArmedAt)
	}
	s.clusters.wake(r.Name)
}

// EndBy is the time by which the stops of a cluster, or of all, end, and by which old records
// are deleted. It is zero, and nothing ends, until the cluster was seen. // I23
func (s *Stop) EndBy(cluster string) time.Time { return s.clocks.endBy(cluster) }
