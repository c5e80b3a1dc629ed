package stop

import (
	"context"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

const (
	quarantineFor = 24 * time.Hour
	quarantinedBy = "fenced"
)

// Quarantine keeps the daemon from fencing a host that was fenced too often in a day: power
// cycles do not help it. name is that of its Node, or the "namespace/name" of its Machine. If a person releases the host, a new day begins. // I15
func (s *Stop) Quarantine(ctx context.Context, cluster, name, why string, now time.Time) {
	h := state.Hold{
		Cluster: cluster, Node: name, Quarantine: true,
		By: quarantinedBy, At: now.UTC(), Until: now.Add(quarantineFor).UTC(), Reason: "fenced again and again: " + why,
	}
	about := key{cluster, name}
	stored, err := s.holds.quarantine(ctx, h, now)
	switch {
	case err != nil: // the gate of the daily limit stays closed without it
		s.opt.Emit(about.event(event.Event{Type: event.Failed, Message: "save the quarantine: " + err.Error()}))
	case stored:
		s.opt.Emit(about.event(event.Event{Type: event.Refused, Reason: reason.Quarantined,
			Message: fmt.Sprintf("quarantined until %s, or until a person releases it: %s", h.Until.Format(time.RFC3339), h.Reason)}))
	}
}

// Quarantined returns why a target's host is in quarantine, and until when. why is "" if it is
// not. // I15
func (s *Stop) Quarantined(cluster string, names ...string) (why string, until time.Time) {
	for _, name := range names {
		if h := s.holds.record(key{cluster, name}, true); h.By != "" && holdOf(h).active(s.EndBy(cluster)) {
			return h.Reason, h.Until
		}
	}
	return "", time.Time{}
}
