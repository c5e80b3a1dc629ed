package main

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/order"
)

func unfenceMessage(o api.Order, out order.Outcome) string {
	return "run " + out.Run + " brings " + o.Of() + " back"
}

func retryMessage(o api.Order, _ order.Outcome) string { return "run " + o.Run + " continues" }

func disarmMessage(_ api.Order, out order.Outcome) string {
	if out.Unchanged != "" {
		return out.Unchanged + ": nothing changed"
	}
	return "disarmed: fenced begins no run by itself; open runs go on"
}

func armMessage(o api.Order, out order.Outcome) string {
	switch {
	case out.Unchanged != "":
		return out.Unchanged + ": nothing changed"
	case o.DryRun:
		return "fenced would act in this cluster by itself"
	}
	return "armed; the quiet period begins, and nothing is fenced before " + out.Until.UTC().Format(time.RFC3339)
}

func armEffect(o api.Order) []string {
	if !o.DryRun {
		return nil
	}
	return []string{
		"fenced fences what the checks ask for, by itself, until fencectl disarm",
		"the quiet period of guards.quietPeriod comes first; fencectl plan shows what follows it",
	}
}

func pauseMessage(_ api.Order, out order.Outcome) string { return stopMessage("paused", out) }

func resumeMessage(_ api.Order, out order.Outcome) string {
	switch {
	case out.Unchanged != "" && out.Still != "":
		return out.Unchanged + "; fencing is still stopped: " + out.Still
	case out.Unchanged != "":
		return out.Unchanged + ": nothing changed"
	case out.Still != "":
		return "resumed, but fencing is still stopped: " + out.Still
	}
	return "resumed; the quiet period begins"
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
		what += "; an earlier stop that ends later stays in force, by " + out.Earlier
	}
	return what
}

// releaseMessage says which of the two was released: a hold and a quarantine end apart.
func releaseMessage(o api.Order, out order.Outcome) string {
	switch {
	case out.Quarantine:
		return o.Of() + " is released from quarantine"
	case out.Still != "":
		return o.Of() + " is no longer held, but still " + out.Still + "; release it again to end that too"
	}
	return o.Of() + " is no longer held"
}

func holdMessage(o api.Order, out order.Outcome) string {
	text := o.Of() + " is " + stopMessage("held", out)
	if out.Unseen {
		kind := "Node"
		if o.Machine != "" {
			kind = "Machine"
		}
		text += "; fenced sees no " + kind + " of this name now, and the hold applies as soon as it does"
	}
	return text
}

func abortMessage(o api.Order, out order.Outcome) string {
	switch {
	case out.Asked != "":
		return "record " + o.Run + " is given up: fenced looks no more after " + out.Asked + "; if that object exists, nobody else acts on its target until you have deleted it"
	case o.AsIs:
		return "run " + o.Run + " is closed, and its host stays as it is"
	}
	return "run " + o.Run + " is aborted: its host is brought back"
}

func confirmMessage(o api.Order, out order.Outcome) string {
	if o.DryRun {
		return "this is what is known about " + o.Node
	}
	return "run " + out.Run + " continues on your confirmation that the host of " + o.Node + " is off"
}

// lastHealthCheck is what the health check knows of a host: when its devices last answered,
// and what the newest look read.
func (c control) lastHealthCheck(ctx context.Context, o order.Order) (evidence []string) {
	found, err := c.sweep.Results(ctx, o.Cluster)
	if err != nil { // nothing was seen yet
		return nil
	}
	for i := range found {
		r := &found[i]
		if r.Node != o.Node || r.LastGood.IsZero() {
			continue
		}
		text := "BMC health check: " + r.Address + " last answered " + time.Since(r.LastGood).Round(time.Second).String() + " ago"
		if r.Failures == 0 {
			text += ", and read " + r.Power.String()
		}
		evidence = append(evidence, text)
	}
	return evidence
}

// unfreezeMessage says whether the host may be switched, or stays frozen for another BMC.
func unfreezeMessage(o api.Order, out order.Outcome) string {
	if out.Still != "" {
		return o.Of() + " is released, but stays frozen for another reason: " + out.Still
	}
	return o.Of() + " may be powered off again"
}

func confirmEffect(o api.Order) []string {
	return []string{
		"no BMC proves that the host of " + o.Node + " is off: your confirmation replaces the proof, and the record shows that for good",
		"its Node is isolated and its pods and volumes can move to other nodes; if the host is running after all, two machines may write to one disk",
		"the host stays off and the run stays Held until fencectl unfence, or until the Node registers again after another boot",
		"make sure that the host cannot start: disconnect its power, or lock its outlet",
	}
}
