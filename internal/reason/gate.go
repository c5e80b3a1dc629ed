package reason

import (
	"cmp"
	"time"
)

// Gate is one condition that must hold before the daemon acts, with what it
// compared. `fencectl explain` prints the list.
type Gate struct {
	Name      string `json:"name"`
	Pass      bool   `json:"pass"`
	Reason    Code   `json:"reason,omitempty"`
	Value     string `json:"value"`
	Threshold string `json:"threshold"`
	Source    string `json:"source"`
	// Until is the earliest time at which the gate could pass, when that is known.
	Until time.Time `json:"until,omitzero"`
}

// Why is the gate as a sentence for who is refused by it: what is, and what would have
// to be. A gate that waits for something to go away has said all with what is.
func (g Gate) Why() string {
	if g.Threshold == "" || g.Threshold == "none" {
		return g.Name + ": " + g.Value
	}
	return g.Name + ": " + g.Value + " (needed: " + g.Threshold + ")"
}

// NewGate makes a Gate; the reason is only kept when it does not hold.
func NewGate(name string, pass bool, code Code, value, threshold, source string) Gate {
	g := Gate{Name: name, Pass: pass, Value: value, Threshold: threshold, Source: source}
	if !pass {
		g.Reason = code
	}
	return g
}

// OpenFrom notes when a gate that does not hold could hold.
func (g Gate) OpenFrom(t time.Time) Gate {
	if !g.Pass {
		g.Until = t
	}
	return g
}

// NoneOf is a gate that holds when there is nothing to say against it.
func NoneOf(name string, code Code, objection, source string) Gate {
	return NewGate(name, objection == "", code, cmp.Or(objection, "none"), "none", source)
}
