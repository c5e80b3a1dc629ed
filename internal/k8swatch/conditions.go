package k8swatch

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fenced/fenced/internal/k8swatch/client"
)

// conditionStyle is one of the two styles of conditions that the Cluster API
// writes.
type conditionStyle int

const (
	standard conditionStyle = iota // metav1.Condition: always a reason, no severity
	severe                         // the older style, with a severity
)

// conditionPaths are the status fields that hold the conditions of each style.
type conditionPaths map[conditionStyle][]string

// conditionPathsOf returns the paths for each API version that has conditions.
func conditionPathsOf(apiVersion string) conditionPaths {
	switch apiVersion {
	case client.ClusterGroup + "/v1beta2":
		return conditionPaths{standard: {"conditions"}, severe: {"deprecated", "v1beta1", "conditions"}}
	case client.ClusterGroup + "/v1beta1":
		return conditionPaths{standard: {"v1beta2", "conditions"}, severe: {"conditions"}}
	}
	return conditionPaths{severe: {"conditions"}} // OpenShift's
}

// condition is a condition to write.
type condition struct {
	kind, status, severity, reason, message string
}

// conditionList is a list of conditions as it is in the API.
type conditionList []any

func (s conditionPaths) read(u *unstructured.Unstructured, which conditionStyle) conditionList {
	list, _, err := unstructured.NestedSlice(u.Object, append([]string{"status"}, s[which]...)...)
	if err != nil {
		return nil // not a list: the API server will reject our write
	}
	return list
}

// write puts a list into the fields of a status.
func (s conditionPaths) write(status map[string]any, which conditionStyle, list conditionList) {
	path := s[which]
	for _, field := range path[:len(path)-1] {
		next, ok := status[field].(map[string]any)
		if !ok {
			next = map[string]any{}
			status[field] = next
		}
		status = next
	}
	status[path[len(path)-1]] = []any(list)
}

func (l conditionList) find(kind string) (int, map[string]any) {
	for i := range l {
		if m, ok := l[i].(map[string]any); ok && m["type"] == kind {
			return i, m
		}
	}
	return -1, nil
}

func (l conditionList) status(kind string) string {
	_, m := l.find(kind)
	status, _ := m["status"].(string)
	return status
}

// with returns the list with one condition set. Its time changes as with the
// upstream controllers: of a standard condition when the status changes, of a
// severe one when anything changes.
func (l conditionList) with(which conditionStyle, c condition, now time.Time) conditionList {
	next := map[string]any{"type": c.kind, "status": c.status, "lastTransitionTime": now.UTC().Format(time.RFC3339)}
	put(next, "message", c.message)
	put(next, "reason", c.reason)
	if which == severe {
		put(next, "severity", c.severity)
	} else if c.message == "" {
		next["message"] = "" // metav1 requires the field
	}
	at, old := l.find(c.kind)
	if old == nil {
		all := append(slices.Clone(l), next)
		if which == severe {
			slices.SortStableFunc(all, byType)
		}
		return all
	}
	if old["status"] == c.status && (which == standard || same(old, next, "reason", "severity", "message")) {
		next["lastTransitionTime"] = old["lastTransitionTime"]
	}
	if which == standard && old["observedGeneration"] != nil {
		next["observedGeneration"] = old["observedGeneration"]
	}
	all := slices.Clone(l)
	all[at] = next
	return all
}

func put(into map[string]any, key, value string) {
	if value != "" {
		into[key] = value
	}
}

func same(a, b map[string]any, keys ...string) bool {
	for _, k := range keys {
		x, _ := a[k].(string)
		y, _ := b[k].(string)
		if x != y {
			return false
		}
	}
	return true
}

func byType(a, b any) int {
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	s, _ := x["type"].(string)
	t, _ := y["type"].(string)
	return strings.Compare(s, t)
}
