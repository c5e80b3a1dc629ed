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
// cycles do not help it. If a person releases the host, a new day begins. // I15
func (s *Stop) Quarantine(ctx context.Context, cluster, node, why string, now time.Time) {
	h := state.Hold{
		Cluster: cluster, Node: node, Quarantine: true,
		By: quarantinedBy, At: now.UTC(), Until: now.Add(quarantineFor).UTC(), Reason: "fenced again and again: " + why,
	}
	stored, err := s.holds.quarantine(ctx, h, now)
	switch {
	case err != nil: // the gate of the daily limit stays closed without it
		s.opt.Emit(event.Event{Type: event.Failed, Cluster: cluster, Node: node, Message: "save the quarantine: " + err.Error()})
	case stored:
		s.opt.Emit(event.Event{Type: event.Refused, Cluster: cluster, Node: node, Reason: reason.Quarantined,
			Message: fmt.Sprintf("quarantined until %s, or until a person releases it: %s", h.Until.Format(time.RFC3339), h.Reason)})
	}
}

// Quarantined returns why a Node's host is in quarantine, and until when. why is "" if it is
// not. // I15
func (s *Stop) Quarantined(cluster, node string) (why string, until time.Time) {
	h := s.holds.record(key{cluster, node}, true)
	if h.By == "" || !holdOf(h).active(s.EndBy(cluster)) {
		return "", time.Time{}
	}
	return h.Reason, h.Until
}
