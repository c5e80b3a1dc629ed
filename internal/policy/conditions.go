package policy

import (
	"iter"
	"time"
	"unique"
)

// Condition is one condition of an object. A zero LastTransition counts as
// infinitely old, as in the upstream controllers.
type Condition struct {
	Type, Status   string
	LastTransition time.Time
}

// Conditions are those of a Node, in order. Kept as Condition they would take more than twice the space, and a hundred thousand Nodes have half a million.
type Conditions []nodeCondition

type nodeCondition struct {
	text        unique.Handle[conditionText]
	seconds     int64 // of the Unix time of the last transition
	nanoseconds int32
}

type conditionText struct{ kind, status string }

// ConditionsOf returns the conditions of a list.
func ConditionsOf(list []Condition) Conditions {
	all := make(Conditions, 0, len(list))
	for _, c := range list {
		all = append(all, nodeCondition{unique.Make(conditionText{c.Type, c.Status}), c.LastTransition.Unix(), int32(c.LastTransition.Nanosecond())})
	}
	return all
}

// Condition is it with its time in UTC.
func (k nodeCondition) Condition() Condition {
	text := k.text.Value()
	return Condition{text.kind, text.status, time.Unix(k.seconds, int64(k.nanoseconds)).UTC()}
}

// All goes through them.
func (c Conditions) All() iter.Seq[Condition] {
	return func(yield func(Condition) bool) {
		for _, k := range c {
			if !yield(k.Condition()) {
				return
			}
		}
	}
}
