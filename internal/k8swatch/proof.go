package k8swatch

import (
	"time"

	"go.uber.org/zap"
)

// asked is one read past every cache: at this time the API server stood at this
// version.
type asked struct {
	at       time.Time
	revision uint64
}

// maxAsked bounds the reads that a stuck watch leaves unproven. The oldest are
// kept, because they are proven first.
const maxAsked = 32

// ask notes a read for the view to reach.
func (s *store) ask(a asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) < maxAsked {
		s.asked = append(s.asked, a)
	}
	s.settle()
}

// settle notes the newest read that the view has reached; s.mu is held.
func (s *store) settle() {
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
// to this version is in. Bookmarks move it where nothing happens.
func (s *store) UpdateResourceVersion(version string) {
	at, err := revision(version)
	s.mu.Lock()
	if err != nil {
		s.problem = err.Error()
	} else {
		s.reached = at
		s.settle()
	}
	s.mu.Unlock()
	s.moved()
}

// version is what the view has reached; 0 before the first list.
func (s *store) version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached
}

// state is when the store was last proven fresh, and what is wrong.
func (s *store) state() (proven time.Time, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		return time.Time{}, s.problem
	}
	return s.proven, s.problem
}

// absent notes that the cluster did not have this kind when it was asked: an
// answer, and as fresh as any. Where it was served until then, nothing is begun
// for a while: somebody may be at work on the API. // I16
func (s *store) absent(asked time.Time) {
	s.mu.Lock()
	if s.reached > 0 || len(s.items) > 0 {
		s.side.c.fresh.disturb(time.Now()) // before anybody is told of what is gone
	}
	news := s.clear() || !s.synced
	s.synced, s.reached, s.asked, s.problem = true, 0, nil, ""
	if asked.After(s.proven) {
		s.proven = asked
	}
	s.mu.Unlock()
	if news {
		s.tell()
	}
	s.moved()
}

// rewind forgets how fresh the content is, not the content.
func (s *store) rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced, s.reached, s.asked, s.proven = false, 0, nil, time.Time{}
	s.problem = "the API went back in time"
}

// fail notes why a request failed; the log hears of it once.
func (s *store) fail(problem string) {
	s.mu.Lock()
	news := s.problem == ""
	s.problem = problem
	s.mu.Unlock()
	if news {
		s.log.Warn("the view of the cluster is disturbed", zap.String("kind", s.kind), zap.String("problem", problem))
	}
}
