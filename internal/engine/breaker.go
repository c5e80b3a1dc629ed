package engine

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

// trip quarantines a host whose runs of a day are used up and that is asked for once
// more: power is no cure for it. A person who releases it begins a new day. // I15
func (c *cluster) trip(ctx context.Context, a candidate, g reason.Gate, now time.Time) {
	node := a.draft.Target.Node
	if g.Pass || g.Reason != reason.FencesPerDay || node == "" {
		return
	}
	h := state.Hold{
		By: quarantinedBy, At: now.UTC(), Until: now.Add(quarantineFor).UTC(),
		Reason: "fenced again and again: " + g.Value,
	}
	made := false
	err := c.e.changeHold(ctx, quarantineOf(c.opt.Name, node), func(old state.Hold) (state.Hold, bool) {
		made = !standing(old, now)
		return h, made
	})
	switch {
	case err != nil: // the gate that tripped stays shut by itself
		c.emit(event.Event{Type: event.Failed, Node: node, Message: "save the quarantine: " + err.Error()})
	case made:
		c.emit(event.Event{Type: event.Refused, Node: node, Reason: string(reason.Quarantined),
			Message: fmt.Sprintf("quarantined until %s, or until a person releases it: %s", h.Until.Format(time.RFC3339), h.Reason)})
	}
}

// quarantine says why the daemon keeps off a Node's host by itself, and until when;
// "" when it does not. // I15
func (e *Engine) quarantine(cluster, node string) (why string, until time.Time) {
	h := e.hold(quarantineOf(cluster, node))
	if !e.stands(h) {
		return "", time.Time{}
	}
	return h.Reason, h.Until
}

// quarantineOf names the quarantine of a Node, which stands beside a person's hold.
func quarantineOf(cluster, node string) state.Hold {
	return state.Hold{Cluster: cluster, Node: node, Quarantine: true}
}

// releasedAt is when a person last let a Node be fenced again; zero when nobody did.
func (e *Engine) releasedAt(cluster, node string) time.Time {
	return later(e.hold(holdOf(cluster, node)).ReleasedAt, e.hold(quarantineOf(cluster, node)).ReleasedAt)
}
