package reason

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Gate is one condition that must hold before the daemon acts, with the values
// that it compared. `fencectl explain` prints the list.
type Gate struct {
	Name      string `json:"name"`
	Pass      bool   `json:"pass"`
	Reason    Code   `json:"reason,omitempty"`
	Class     Class  `json:"class,omitempty"` // of Reason; only in an explanation
	Value     string `json:"value"`
	Threshold string `json:"threshold"`
	Source    string `json:"source"`
	// Waived: the gate would not pass, but an order by a person does not need it. Reason says
	// why it would not.
	Waived bool `json:"waived,omitempty"`
	// Unchecked: what the gate depends on was not read yet. It is read before a run starts, so
	// the gate passes until then.
	Unchecked bool `json:"unchecked,omitempty"`
	// Until is the earliest time at which the gate could pass, when that is known.
	Until time.Time `json:"until,omitzero"`
}

// Why is the gate as a sentence: its value, and the value that is needed. A
// threshold of "none" is left out, because the value says all.
func (g Gate) Why() string {
	if g.Threshold == "" || g.Threshold == "none" {
		return g.Name + ": " + g.Value
	}
	return g.Name + ": " + g.Value + " (needed: " + g.Threshold + ")"
}

// NewGate makes a Gate. It keeps the code only if the gate does not pass.
func NewGate(name string, pass bool, code Code, value, threshold, source string) Gate {
	g := Gate{Name: name, Pass: pass, Value: value, Threshold: threshold, Source: source}
	if !pass {
		g.Reason = code
	}
	return g
}

// NotChecked marks a gate that passes only because what it depends on was not read yet.
func (g Gate) NotChecked(what string) Gate {
	if g.Pass {
		g.Unchecked, g.Value = true, what+"not checked yet; it is read before a run starts"
	}
	return g
}

// PassesFrom sets when a closed gate could pass.
func (g Gate) PassesFrom(t time.Time) Gate {
	if !g.Pass {
		g.Until = t
	}
	return g
}

// NoneOf is a gate that passes if there is no objection.
func NoneOf(name string, code Code, objection, source string) Gate {
	return NewGate(name, objection == "", code, cmp.Or(objection, "none"), "none", source)
}

// Refusal is the error of an action that a gate forbids: a stable code, and a
// sentence for people.
type Refusal struct {
	Reason  Code
	Message string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Reason, r.Message) }

// RefusalOf turns a closed gate into an error.
func RefusalOf(g Gate) *Refusal {
	return &Refusal{Reason: g.Reason, Message: g.Why()}
}

// OfBMC is the code of what a BMC refused, by the kind of the error: BMCAuth, for example.
func OfBMC(kind string) Code { return Code("BMC" + kind) }

// AsRefusal returns the Refusal that err is or wraps.
func AsRefusal(err error) (*Refusal, bool) { return errors.AsType[*Refusal](err) }

// Sentence is the text of an error for a display that shows the code separately.
// The code of a Refusal in it is left out.
func Sentence(err error) string {
	if r, ok := AsRefusal(err); ok {
		return strings.Replace(err.Error(), r.Error(), r.Message, 1)
	}
	return err.Error()
}

// Join writes codes for people.
func Join(codes []Code) string {
	all := make([]string, len(codes))
	for i, c := range codes {
		all[i] = string(c)
	}
	return strings.Join(all, ", ")
}
