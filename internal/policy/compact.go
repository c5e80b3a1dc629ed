package policy

import (
	"iter"
	"slices"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
)

// What a cluster has a hundred thousand times is kept here in little space: labels, conditions, and lists by a key.

// Labels are those of a Node, for selectors, too. A map of its own for each Node would be the largest part of what is kept of it: only one or two of its
// labels are not those of others. So they are a list, ordered by key, of pairs that Nodes share. Nobody changes them.
type Labels []*Label

// Label is one label.
type Label struct{ Key, Value string }

var _ labels.Labels = Labels(nil)

// LabelsOf returns the labels of a map, which share nothing.
func LabelsOf(m map[string]string) Labels {
	return SharedLabels(m, func(l Label) *Label { return &l })
}

// SharedLabels returns the labels of a map. share returns the pair that others share.
func SharedLabels(m map[string]string, share func(Label) *Label) Labels {
	if len(m) == 0 {
		return nil
	}
	list := make(Labels, 0, len(m))
	for k, v := range m {
		list = append(list, share(Label{k, v}))
	}
	slices.SortFunc(list, func(a, b *Label) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// Lookup returns the value of a label, and whether there is one.
func (l Labels) Lookup(key string) (value string, exists bool) {
	at, found := slices.BinarySearchFunc(l, key, func(p *Label, key string) int { return strings.Compare(p.Key, key) })
	if !found {
		return "", false
	}
	return l[at].Value, true
}

// Has reports whether there is a label.
func (l Labels) Has(key string) bool {
	_, exists := l.Lookup(key)
	return exists
}

// Get returns the value of a label, "" without one.
func (l Labels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// Equal reports whether both have the same labels.
func (l Labels) Equal(o Labels) bool {
	return slices.EqualFunc(l, o, func(a, b *Label) bool { return a == b || *a == *b })
}

// Map returns the labels as a map of its own; never nil.
func (l Labels) Map() map[string]string {
	m := make(map[string]string, len(l))
	for _, p := range l {
		m[p.Key] = p.Value
	}
	return m
}

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

// listing lists values by a key. Nearly every key has one value, and only the others have a slice: for a hundred thousand keys the slices would take
// more than the rest. A value is removed from a copy of its slice, because a caller may still go through it.
type listing[K, V comparable] struct {
	one     map[K]V
	several map[K][]V
}

func newListing[K, V comparable]() listing[K, V] { return listing[K, V]{map[K]V{}, map[K][]V{}} }

// of goes through the values of a key.
func (x listing[K, V]) of(key K) iter.Seq[V] {
	return func(yield func(V) bool) {
		if v, ok := x.one[key]; ok {
			yield(v)
			return
		}
		for _, v := range x.several[key] {
			if !yield(v) {
				return
			}
		}
	}
}

// len is how many values a key has.
func (x listing[K, V]) len(key K) int {
	if _, ok := x.one[key]; ok {
		return 1
	}
	return len(x.several[key])
}

// set replaces the values of a key.
func (x listing[K, V]) set(key K, list []V) {
	delete(x.one, key)
	delete(x.several, key)
	switch len(list) {
	case 0:
	case 1:
		x.one[key] = list[0]
	default:
		x.several[key] = list
	}
}

// add adds a value after the others.
func (x listing[K, V]) add(key K, v V) { x.put(key, v, func(_, _ V) int { return -1 }) }

// put adds a value at its place in the order.
func (x listing[K, V]) put(key K, v V, order func(a, b V) int) {
	list := x.several[key]
	if only, ok := x.one[key]; ok {
		list = []V{only}
	}
	at, _ := slices.BinarySearchFunc(list, v, order)
	x.set(key, slices.Insert(list, at, v))
}

// drop removes a value once.
func (x listing[K, V]) drop(key K, v V) {
	if only, ok := x.one[key]; ok {
		if only == v {
			delete(x.one, key)
		}
		return
	}
	list := x.several[key]
	if at := slices.Index(list, v); at >= 0 {
		x.set(key, slices.Concat(list[:at], list[at+1:]))
	}
}

// keep removes the values of a key that are not to stay.
func (x listing[K, V]) keep(key K, stays func(V) bool) {
	var list []V
	for v := range x.of(key) {
		if stays(v) {
			list = append(list, v)
		}
	}
	x.set(key, list)
}
