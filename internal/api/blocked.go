package api

import (
	"cmp"
	"fmt"
	"time"
)

// Blocked is a target that a check wants remediated, or a Waiting run, and what forbids it now.
type Blocked struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Machine string `json:"machine"`       // namespace/name
	Check   string `json:"check"`         // kind and name; empty for a run that a person ordered
	Run     string `json:"run,omitempty"` // of a Waiting run
	Reason  string `json:"reason"`
	Class   string `json:"class,omitempty"` // of the reason: transient, mended or person
	Message string `json:"message"`
	// Since is since when that is the reason.
	Since time.Time `json:"since,omitzero"`
	// NextTry is when fenced asks again; absent: when what forbids it has changed.
	NextTry time.Time `json:"nextTry,omitzero"`
}

// blockedSentences says what is not remediated, and why. Targets of one check with the same reason
// have one sentence, so that a site that is down does not fill the screen.
func blockedSentences(list []Blocked) (why []string) {
	type group struct{ cluster, check, run, reason string }
	members := map[group][]Blocked{}
	var order []group
	for _, b := range list {
		g := group{b.Cluster, b.Check, b.Run, b.Reason}
		if len(members[g]) == 0 {
			order = append(order, g)
		}
		members[g] = append(members[g], b)
	}
	for _, g := range order {
		first, n := members[g][0], len(members[g])
		switch name := cmp.Or(first.Node, first.Machine); {
		case g.run != "":
			why = append(why, fmt.Sprintf("run %s of %s may not go on: %s", g.run, name, first.cause()))
		case n == 1:
			why = append(why, fmt.Sprintf("%s in %s is not remediated (%s): %s", name, g.cluster, g.check, first.cause()))
		default:
			why = append(why, fmt.Sprintf("%d targets in %s are not remediated (%s), %s and others: %s", n, g.cluster, g.check, name, first.cause()))
		}
	}
	return why
}

// cause is the reason with all that is known of it.
func (b Blocked) cause() string {
	text := fmt.Sprintf("%s: %s; since %s", b.Reason, b.Message, b.Since.UTC().Format(time.RFC3339))
	if !b.NextTry.IsZero() {
		text += ", next try " + b.NextTry.UTC().Format(time.RFC3339)
	}
	return text
}
