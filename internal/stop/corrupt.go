package stop

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
)

const maxUnread = 500 // bytes of the text about unreadable records

// corruptRecords are the records of pauses, holds and freezes that exist and cannot be read.
// Nobody knows what they forbid, so everything is paused. Hosts that are off still come
// back. // I20, I23
type corruptRecords struct {
	mu   sync.Mutex
	errs map[state.Kind]error
}

func newCorruptRecords() *corruptRecords { return &corruptRecords{errs: map[state.Kind]error{}} }

// note records the result of reading the records of a kind. It reports whether that changed
// anything. If the store did not answer, nothing changes.
func (c *corruptRecords) note(kind state.Kind, err error) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, had := c.errs[kind]
	switch {
	case err == nil:
		delete(c.errs, kind)
		return had
	case errors.Is(err, state.ErrUnreadable):
		c.errs[kind] = err
		return !had || old.Error() != err.Error()
	}
	return false
}

// why returns why everything is paused because of such records. It is "" if there are none.
func (c *corruptRecords) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errs) == 0 {
		return ""
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(c.errs)) {
		texts = append(texts, strings.ReplaceAll(c.errs[kind].Error(), "\n", "; "))
	}
	return "everything is paused: what forbids something cannot be read: " + bmc.Printable(strings.Join(texts, "; "), maxUnread)
}

// NoteUnread records the result of reading the records of a kind. It returns err if the store
// did not answer at all. When all records can be read again, the quiet period begins. // I16
func (s *Stop) NoteUnread(kind state.Kind, err error) error {
	if s.corrupt.note(kind, err) {
		ev := event.Event{Type: event.Failed, Message: s.corrupt.why()}
		if ev.Message == "" {
			ev = event.Event{Type: event.Internal, Message: "what forbids something can be read again; the quiet period begins"}
		}
		s.clusters.beQuiet(state.AllClusters, time.Now())
		s.opt.Emit(ev)
		s.clusters.wake(state.AllClusters)
	}
	if err != nil && !errors.Is(err, state.ErrUnreadable) {
		return err
	}
	return nil
}

// Corrupt returns why everything is paused because of unreadable records. It is "" if there
// are none.
func (s *Stop) Corrupt() string { return s.corrupt.why() }
