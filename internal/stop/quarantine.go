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

// Quarantine keeps the daemon off a host that was fenced again and again: power is no cure
// for it. A person who releases it begins a new day. // I15
func (s *Stop) Quarantine(ctx context.Context, cluster, node, why string, now time.Time) {
	h := state.Hold{
		Cluster: cluster, Node: node, Quarantine: true,
		By: quarantinedBy, At: now.UTC(), Until: now.Add(quarantineFor).UTC(), Reason: "fenced again and again: " + why,
	}
	made := false
	err := s.changeHold(ctx, key{cluster, node}, true, func(old *state.Hold) bool {
		made = !holdOf(*old).active(now)
		*old = h
		return made
	})
	switch {
	case err != nil: // the gate that tripped stays shut by itself
		s.opt.Emit(event.Event{Type: event.Failed, Cluster: cluster, Node: node, Message: "save the quarantine: " + err.Error()})
	case made:
		s.opt.Emit(event.Event{Type: event.Refused, Cluster: cluster, Node: node, Reason: reason.Quarantined,
			Message: fmt.Sprintf("quarantined until %s, or until a person releases it: %s", h.Until.Format(time.RFC3339), h.Reason)})
	}
}

// Quarantined says why the daemon keeps off a Node's host by itself, and until when;
// "" when it does not. // I15
func (s *Stop) Quarantined(cluster, node string) (why string, until time.Time) {
	h := s.hold(key{cluster, node}, true)
	if h.By == "" || !holdOf(h).active(s.EndBy(cluster)) {
		return "", time.Time{}
	}
	return h.Reason, h.Until
}
