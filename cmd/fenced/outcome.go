package main

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
)

func unfenceMessage(o api.Order, out engine.Outcome) string {
	return "run " + out.Run + " brings " + o.Node + " back"
}

func retryMessage(o api.Order, _ engine.Outcome) string { return "run " + o.Run + " is taken up again" }

func doneMessage(o api.Order, _ engine.Outcome) string { return string(o.Verb) + " done" }

func pauseMessage(_ api.Order, out engine.Outcome) string { return stopMessage("paused", out) }

func resumeMessage(_ api.Order, out engine.Outcome) string {
	if out.Still != "" {
		return "resumed, and still: " + out.Still
	}
	return "resumed; the quiet period begins"
}

// stopMessage says how long a stop binds, and whether it outlives the daemon.
func stopMessage(what string, out engine.Outcome) string {
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
func releaseMessage(o api.Order, out engine.Outcome) string {
	switch {
	case out.Quarantine:
		return o.Node + " is released from the quarantine"
	case out.Still != "":
		return o.Node + " is held no more, and still " + out.Still + " (release it once more to end that, too)"
	}
	return o.Node + " is held no more"
}

func holdMessage(o api.Order, out engine.Outcome) string {
	text := o.Node + " is " + stopMessage("held", out)
	if out.Unseen {
		text += "; no Node of this name is seen now, and the hold stands for when there is"
	}
	return text
}

func abortMessage(o api.Order, _ engine.Outcome) string {
	if o.AsIs {
		return "run " + o.Run + " is closed, and its host stays as it is"
	}
	return "run " + o.Run + " is aborted: its host is brought back"
}

func confirmMessage(o api.Order, out engine.Outcome) string {
	if o.DryRun {
		return "this is what is known about " + o.Node
	}
	return "run " + out.Run + " takes your word that the host of " + o.Node + " is off"
}

// lastReads is what the health check knows of a host: when its devices last answered,
// and what the newest look read.
func (c control) lastReads(ctx context.Context, o engine.Order) (evidence []string) {
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

// unfreezeMessage says whether the host may be switched, or stays frozen for another BMC.
func unfreezeMessage(o api.Order, out engine.Outcome) string {
	if out.Still != "" {
		return "the freezes of " + o.Node + " are ended, and it stays frozen for another: " + out.Still
	}
	return o.Node + " may be switched again"
}

func fenceMessage(o api.Order, out engine.Outcome) string {
	switch {
	case o.DryRun && !out.Joined:
		return o.Node + " would be fenced"
	case out.Joined:
		return "joined run " + out.Run + ", which already fences " + o.Node
	}
	return "run " + out.Run + " fences " + o.Node
}

func confirmEffect(o api.Order) []string {
	return []string{
		"nobody proves that the host of " + o.Node + " is off: your word takes the place of the proof, and is marked for ever",
		"its Node is isolated and its pods and volumes go elsewhere; if the host runs after all, two machines may write one disk",
		"the host is left off, and the run is Held, until unfence, or until the Node registers anew after another boot",
		"be sure that the host cannot come on: pull its mains, or lock its outlet",
	}
}

func fenceEffect(o api.Order) []string {
	all := []string{
		"the power of " + o.Node + " is cut at once, without a shutdown",
		"once the BMC has read Off twice, its Node is isolated and its pods go elsewhere",
	}
	if o.OffOnly {
		return append(all, "the host stays off until unfence")
	}
	return append(all, "the host is powered on again, and its labels, annotations, taints and cordon are restored")
}
