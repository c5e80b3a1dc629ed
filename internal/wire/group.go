package wire

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Group names Nodes by their labels, in place of one Node. Exactly one field is given. The daemon looks at the labels
// when the order comes: a Node that gets them later does not belong to it.
type Group struct {
	Selector string `json:"selector,omitempty"` // KEY=VALUE, several separated by commas: a Node has all of them
	Zone     string `json:"zone,omitempty"`     // the value of the label guards.zoneKey
	Rack     string `json:"rack,omitempty"`     // the value of the label guards.rackKey
}

// IsGiven reports whether the order is about Nodes with labels.
func (g Group) IsGiven() bool { return g != Group{} }

// maxLabels bounds a selector.
const maxLabels = 8

// They are compiled for the first label: most commands give none.
var (
	labelKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	})
	labelValue = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`) })
)

// Labels are those that each Node of the group has. zoneKey and rackKey are the labels of zones and racks.
func (g Group) Labels(zoneKey, rackKey string) (map[string]string, error) {
	labels, given := map[string]string{}, 0
	var err error
	if g.Selector != "" {
		given, err = given+1, addSelector(labels, g.Selector)
	}
	if g.Zone != "" {
		given, err = given+1, addLabel(labels, zoneKey, g.Zone)
	}
	if g.Rack != "" {
		given, err = given+1, addLabel(labels, rackKey, g.Rack)
	}
	if given != 1 {
		return nil, fmt.Errorf("one of selector, zone and rack says which Nodes are meant, and %d are given", given)
	}
	return labels, err
}

// addSelector adds KEY=VALUE, several of them separated by commas.
func addSelector(labels map[string]string, text string) error {
	parts := strings.Split(text, ",")
	if len(parts) > maxLabels {
		return fmt.Errorf("%d labels are given, at most %d are possible", len(parts), maxLabels)
	}
	for _, part := range parts {
		key, value, _ := strings.Cut(part, "=")
		if err := addLabel(labels, key, value); err != nil {
			return err
		}
	}
	return nil
}

// addLabel adds one label. An empty value is refused: it is what a variable leaves that is not set.
func addLabel(labels map[string]string, key, value string) error {
	if !labelKey().MatchString(key) || !labelValue().MatchString(value) {
		return fmt.Errorf("%q is not KEY=VALUE with the key and the value of a label", key+"="+value)
	}
	if _, twice := labels[key]; twice {
		return fmt.Errorf("the label %s is given twice", key)
	}
	labels[key] = value
	return nil
}

// SelectorOf writes labels as a selector. The same labels give the same text.
func SelectorOf(labels map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, ",")
}

// GroupNode is what became of one Node of a Group.
type GroupNode struct {
	Node string `json:"node"`
	// Changed: the order held or released it, or after a dry run would.
	Changed bool `json:"changed"`
	// Held: a person holds it now. Until is when its hold ends by itself, also that of a dry run.
	Held  bool      `json:"held"`
	Until time.Time `json:"until,omitzero"`
	Run   string    `json:"run,omitempty"` // that is open on it
	// Note says what is not as ordered: another hold stays, or this one is not saved yet.
	Note string `json:"note,omitempty"`
}
