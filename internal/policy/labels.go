package policy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

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
