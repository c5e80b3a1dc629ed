package k8swatch

import (
	"time"

	"go.uber.org/zap"
)

// freshRead is one uncached read: at this time the API server was at this
// version.
type freshRead struct {
	at       time.Time
	revision uint64
}

// maxFreshReads limits the reads that a stuck watch leaves unproven. The oldest
// are kept, because they are proven first.
const maxFreshReads = 32

// noteRead records a read that the view must reach.
func (s *store) noteRead(a freshRead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) < maxFreshReads {
		s.asked = append(s.asked, a)
	}
	s.updateProven()
}

// updateProven records the newest read that the view has reached; s.mu is held.
func (s *store) updateProven() {
	if !s.synced {
		return
	}
	left := s.asked[:0]
	for _, a := range s.asked {
		switch {
		case a.revision > s.reached:
			left = append(left, a)
		case a.at.After(s.proven):
			s.proven, s.problem = a.at, ""
		}
	}
	s.asked = left
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: every event up
// to this version has been received. Bookmarks advance it while nothing changes.
func (s *store) UpdateResourceVersion(version string) {
	at, err := revision(version)
	s.mu.Lock()
	if err != nil {
		s.problem = err.Error()
	} else {
		s.reached = at
		s.updateProven()
	}
	s.mu.Unlock()
	s.notifyProgress()
}

// version is the version that the view has reached; 0 before the first list.
func (s *store) version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached
}

// state returns when the store was last proven fresh, and the problem.
func (s *store) state() (proven time.Time, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return time.Time{}, s.problem
	}
	return s.proven, s.problem
}

// noteNotInstalled records that the cluster did not have this kind at that time:
// an answer as fresh as any. If the kind was served until then, a quiet period
// starts, because somebody may be changing the API. // I16
func (s *store) noteNotInstalled(asked time.Time) {
	s.mu.Lock()
	if s.reached > 0 || len(s.items) > 0 {
		s.side.c.fresh.markOutage(time.Now()) // before the removals are journaled
	}
	news := s.clear() || !s.synced
	s.synced, s.reached, s.asked, s.problem = true, 0, nil, ""
	if asked.After(s.proven) {
		s.proven = asked
	}
	s.mu.Unlock()
	if news {
		s.notifyChange()
	}
	s.notifyProgress()
}

// rewind discards how fresh the content is, not the content.
func (s *store) rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced, s.reached, s.asked, s.proven = false, 0, nil, time.Time{}
	s.problem = "the API went back in time"
}

// fail records why a request failed; it is logged once.
func (s *store) fail(problem string) {
	s.mu.Lock()
	news := s.problem == ""
	s.problem = problem
	s.mu.Unlock()
	if news {
		s.log.Warn("the view of the cluster cannot be refreshed", zap.String("kind", s.Kind), zap.String("problem", problem))
	}
}
