package policy

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// view is a snapshot with the indexes that one Decide needs.
type view struct {
	*Snapshot
	byNamespace map[string][]*Machine // each list sorted by name
	requests    map[ObjectKey]bool
	unreadNodes map[string]bool // Nodes that exist but could not be decoded
	unreadAny   bool            // something that may be any Node could not be decoded
}

func newView(s *Snapshot) *view {
	v := &view{
		Snapshot:    s,
		byNamespace: map[string][]*Machine{},
		requests:    map[ObjectKey]bool{},
		unreadNodes: map[string]bool{},
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		v.byNamespace[m.Namespace] = append(v.byNamespace[m.Namespace], m)
	}
	for _, list := range v.byNamespace {
		slices.SortFunc(list, func(a, b *Machine) int { return strings.Compare(a.Name, b.Name) })
	}
	for _, k := range s.Requests {
		v.requests[k] = true
	}
	for _, k := range s.Undecoded {
		switch {
		case k.Kind != "" && k.Kind != "Node":
		case k.Kind == "" || k.Name == "":
			v.unreadAny = true
		default:
			v.unreadNodes[k.Name] = true
		}
	}
	return v
}

// selected lists the Machines that the check covers, sorted by name.
func (v *view) selected(c *Check) []*Machine {
	if c.Selector == nil {
		return nil
	}
	var list []*Machine
	for _, m := range v.byNamespace[c.Namespace] {
		if c.Selector.Matches(labels.Set(m.Labels)) {
			list = append(list, m)
		}
	}
	return list
}

// gone says whether a Node is known not to exist. One that could not be
// decoded is there; we just cannot say how it is.
func (v *view) gone(node string) bool {
	return v.Nodes[node] == nil && !v.unreadNodes[node] && !v.unreadAny
}

// judge is Judge plus what one Machine and its Node do not show by themselves.
func (v *view) judge(c *Check, m *Machine, now time.Time) TargetReport {
	t := Judge(*c, *m, v.Nodes[m.NodeName], v.gone(m.NodeName), now)
	if run := v.OpenRuns[m.Key()]; run != "" {
		return t.underRemediation("run " + run + " is open on it")
	}
	if t.Verdict != Unhealthy {
		return t
	}
	if t.Action == CreateRequest && v.requests[c.request(m)] {
		t.refuse(AlreadyRequested)
	}
	if lease, ok := v.Leases[m.NodeName]; ok {
		t.refuseAlive(v.Nodes[m.NodeName], lease, now)
	}
	return t
}
