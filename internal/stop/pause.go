package stop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
)

// pausesOf returns the two pauses that a cluster, or all clusters, can have: the unsaved one
// and the stored one.
func (s *Stop) pausesOf(cluster string) []stop {
	return []stop{s.unsaved.get(key{cluster: cluster}), pauseOf(s.Record(cluster))}
}

// Paused returns why nothing new may begin in a cluster. It is "" if it may. When a pause ends
// by its time, Paused begins the quiet period, and nothing else does: so a caller that sees
// that the pause is over sees the quiet period as well. // I16, I23
func (s *Stop) Paused(cluster string) string {
	why, _ := s.PausedBy(cluster)
	return why
}

// PausedBy is Paused, with the command that ends the pause.
func (s *Stop) PausedBy(cluster string) (why, resume string) {
	why, ended := s.file.look(time.Now())
	if why != "" {
		resume = "rm " + s.file.path
	} else if why = s.Corrupt(); why != "" {
		resume = "install the version of fenced that wrote the record, or restore a backup, then systemctl restart fenced"
	}
	for _, name := range []string{state.AllClusters, cluster} {
		for _, p := range s.pausesOf(name) {
			switch {
			case p == stop{}:
			case !p.active(s.EndBy(name)):
				ended = times.Later(ended, s.clocks.endedAt(p.until))
			case why == "":
				why, resume = pauseText(name, p)+s.clocks.overdueText(p.until), "fencectl resume --reason WHY"
				if name != state.AllClusters {
					resume = "fencectl resume --cluster " + name + " --reason WHY"
				}
			}
		}
	}
	if c := s.clusters.Get(cluster); c != nil && !ended.IsZero() {
		c.BeQuiet(ended)
	}
	return why, resume
}

// Pause stops everything that is new and everything that can still be taken back, in one
// cluster or, if the order names none, in all. // I23
func (s *Stop) Pause(ctx context.Context, o wire.Order) order.Outcome {
	return s.begin(ctx, key{cluster: o.Cluster}, o, "pauses", "paused"+o.InClusters())
}

// Resume ends a pause; the quiet period follows. It does not remove the pause file. If there is no
// such pause, it changes nothing. Outcome.Still says what continues to pause.
func (s *Stop) Resume(ctx context.Context, o wire.Order) (order.Outcome, error) {
	if err := s.lock(ctx); err != nil {
		return order.Outcome{}, fmt.Errorf("resume; it stays as it is: %w", err)
	}
	defer s.saving.Release(1)
	now, k := time.Now().UTC(), key{cluster: o.Cluster}
	unsaved := s.unsaved.get(k)
	if end := s.EndBy(o.Cluster); !unsaved.active(end) && !s.stored(k).active(end) && s.Corrupt() == "" {
		s.opt.Emit(o.Event("resumes, although nothing was paused"))
		return order.Outcome{Unchanged: "nothing that this order ends was paused", Still: s.stillPaused(o.Cluster)}, nil
	}
	err := s.Change(ctx, o.Cluster, func(r *state.Cluster) { clearPause(r, now) })
	if err != nil && (s.stored(k) != stop{} || unsaved == stop{}) {
		return order.Outcome{}, fmt.Errorf("save the end of the pause; it stays paused: %w", err)
	}
	s.clusters.beQuiet(o.Cluster, now)
	s.unsaved.drop(k, unsaved)
	s.clusters.wake(o.Cluster)
	s.opt.Emit(o.Event("resumes"))
	return order.Outcome{Still: s.stillPaused(o.Cluster)}, nil
}

// stillPaused returns why a cluster is paused although it was resumed, or why one of the
// clusters is if all were resumed, and what ends that. It is "" if none is paused.
func (s *Stop) stillPaused(resumed string) string {
	for _, name := range slices.Sorted(maps.Keys(s.clusters.named(resumed))) {
		if why, resume := s.PausedBy(name); why != "" {
			return why + " (to end that: " + resume + ")"
		}
	}
	return ""
}

// maxFileReason is how many bytes of the pause file a message shows.
const maxFileReason = 200

// pauseFile pauses everything while the file exists. It needs neither the API, nor the store,
// nor the socket, so it works when nothing else does. // I23
type pauseFile struct {
	path string // "" if no file is configured

	mu     sync.Mutex
	exists bool
	ended  time.Time // when the file was last found gone; zero if it never went away
}

// look returns why the file pauses everything, or "" if it does not, and when the last such
// pause ended. If the file cannot be looked at, it pauses as well: nobody knows that it does
// not exist.
func (f *pauseFile) look(now time.Time) (why string, ended time.Time) {
	if f.path == "" {
		return "", time.Time{}
	}
	why = f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.exists && why == "" {
		f.ended = now
	}
	f.exists = why != ""
	return why, f.ended
}

func (f *pauseFile) read() string {
	fi, err := os.Lstat(f.path) // a dangling link counts as well
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return "it cannot be seen whether everything is paused: " + err.Error()
	}
	why := "everything is paused by the file " + f.path
	if !fi.Mode().IsRegular() { // opening a pipe could block for ever
		return why
	}
	file, err := os.Open(f.path)
	if err != nil {
		return why
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileReason))
	if err != nil {
		return why
	}
	return why + ": " + cmp.Or(strings.TrimSpace(bmc.Printable(string(text), maxFileReason)), "it gives no reason")
}

// clearPause removes the pause from a record.
func clearPause(r *state.Cluster, at time.Time) {
	r.Paused, r.PausedBy, r.PausedReason, r.PausedAt, r.PausedUntil = false, "", "", time.Time{}, time.Time{}
	r.ResumedAt = times.Later(r.ResumedAt, at)
}
