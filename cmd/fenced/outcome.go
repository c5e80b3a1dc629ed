package main

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/order"
)

// outcome is what became of an order, as a sentence.
func (c control) outcome(ctx context.Context, o api.Order, order order.Order, out order.Outcome) string {
	switch o.Verb {
	case api.Fence:
		return fenceMessage(o, out)
	case api.Unfence:
		return "run " + out.Run + " brings " + o.Node + " back"
	case api.Abort:
		return abortMessage(o)
	case api.Retry:
		return "run " + o.Run + " is taken up again"
	case api.ConfirmOff:
		return confirmMessage(o, out)
	case api.Hold:
		return holdMessage(o, out)
	case api.Release:
		return releaseMessage(o, out)
	case api.Pause:
		return stopMessage("paused", out)
	case api.Resume:
		if out.Still != "" {
			return "resumed, and still: " + out.Still
		}
		return "resumed; the quiet period begins"
	case api.ReleaseBMC:
		return released(o.Node, c.engine.StillFrozen(order))
	}
	return string(o.Verb) + " done"
}

// stopMessage says how long a stop binds, and whether it outlives the daemon.
func stopMessage(what string, out order.Outcome) string {
	switch {
	case out.Unsaved != "":
		return out.Unsaved
	case !out.Until.IsZero():
		what += " until " + out.Until.Format(time.RFC3339)
	}
	if out.Earlier != "" {
		what += "; what stood before ends no earlier and goes on, by " + out.Earlier
	}
	return what
}

// releaseMessage says which of the two was released: a hold and a quarantine end apart.
func releaseMessage(o api.Order, out order.Outcome) string {
	switch {
	case out.Quarantine:
		return o.Node + " is released from the quarantine"
	case out.Still != "":
		return o.Node + " is held no more, and still " + out.Still + " (release it once more to end that, too)"
	}
	return o.Node + " is held no more"
}

func holdMessage(o api.Order, out order.Outcome) string {
	text := o.Node + " is " + stopMessage("held", out)
	if out.Unseen {
		text += "; no Node of this name is seen now, and the hold stands for when there is"
	}
	return text
}

func abortMessage(o api.Order) string {
	if o.AsIs {
		return "run " + o.Run + " is closed, and its host stays as it is"
	}
	return "run " + o.Run + " is aborted: its host is brought back"
}

func confirmMessage(o api.Order, out order.Outcome) string {
	if o.DryRun {
		return "this is what is known about " + o.Node
	}
	return "run " + out.Run + " takes your word that the host of " + o.Node + " is off"
}

// lastReads is what the health check knows of a host: when its devices last answered,
// and what the newest look read.
func (c control) lastReads(ctx context.Context, o api.Order) (evidence []string) {
	found, err := c.sweep.Results(ctx, o.Cluster)
	if err != nil { // nothing was seen yet
		return nil
	}
	for i := range found {
		r := &found[i]
		if r.Node != o.Node || r.LastGood.IsZero() {
			continue
		}
		text := "health check: " + r.Address + " last answered " + time.Since(r.LastGood).Round(time.Second).String() + " ago"
		if r.Failures == 0 {
			text += ", and read " + r.Power.String()
		}
		evidence = append(evidence, text)
	}
	return evidence
}

// released tells what the end of a host's freezes came to; still is why it must not
// be switched off yet.
func released(node, still string) string {
	if still != "" {
		return "the freezes of " + node + " are ended, and it stays frozen for another: " + still
	}
	return node + " may be switched again"
}

func fenceMessage(o api.Order, out order.Outcome) string {
	switch {
	case o.DryRun && !out.Joined:
		return o.Node + " would be fenced"
	case out.Joined:
		return "joined run " + out.Run + ", which already fences " + o.Node
	}
	return "run " + out.Run + " fences " + o.Node
}

// effect is what an order does to the world.
func effect(o api.Order) []string {
	switch {
	case o.Verb == api.ConfirmOff:
		return []string{
			"nobody proves that the host of " + o.Node + " is off: your word takes the place of the proof, and is marked for ever",
			"its Node is isolated and its pods and volumes go elsewhere; if the host runs after all, two machines may write one disk",
			"the host is left off, and the run is Held, until unfence, or until the Node registers anew after another boot",
			"be sure that the host cannot come on: pull its mains, or lock its outlet",
		}
	case o.Verb != api.Fence:
		return nil
	}
	all := []string{
		"the power of " + o.Node + " is cut at once, without a shutdown",
		"once the BMC has read Off twice, its Node is isolated and its pods go elsewhere",
	}
	if o.OffOnly {
		return append(all, "the host stays off until unfence")
	}
	return append(all, "the host is powered on again, and its labels, annotations, taints and cordon are restored")
}
