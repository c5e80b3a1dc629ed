package wire

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
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

var (
	labelKey   = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// Labels are those that each Node of the group has. zoneKey and rackKey are the labels of zones and racks.
func (g Group) Labels(zoneKey, rackKey string) (map[string]string, error) {
	given := 0
	var text string
	for _, each := range []struct{ text, value string }{
		{g.Selector, g.Selector}, {zoneKey + "=" + g.Zone, g.Zone}, {rackKey + "=" + g.Rack, g.Rack},
	} {
		if each.value != "" {
			given, text = given+1, each.text
		}
	}
	if given != 1 {
		return nil, fmt.Errorf("one of selector, zone and rack says which Nodes are meant, and %d are given", given)
	}
	return parseSelector(text)
}

// parseSelector reads KEY=VALUE, several of them separated by commas. An empty value is refused: it is what a variable
// leaves that is not set.
func parseSelector(text string) (map[string]string, error) {
	labels := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(part, "=")
		_, twice := labels[key]
		switch {
		case !found || !labelKey.MatchString(key) || !labelValue.MatchString(value):
			return nil, fmt.Errorf("%q is not KEY=VALUE with the key and the value of a label", part)
		case twice:
			return nil, fmt.Errorf("the label %s is given twice", key)
		}
		labels[key] = value
	}
	if len(labels) > maxLabels {
		return nil, fmt.Errorf("%d labels are given, at most %d are possible", len(labels), maxLabels)
	}
	return labels, nil
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
