package k8swatch

import (
	"sync"

	"github.com/fenced/fenced/internal/policy"
)

// views are what tests have been told of each Cluster: the changes are given
// out once, and several assertions look at them.
var views sync.Map

// view is everything a Cluster has told so far.
type view map[policy.ObjectID]policy.Change

// seen takes what changed and gives the whole view.
func seen(c *Cluster) view {
	kept, _ := views.LoadOrStore(c, view{})
	v := kept.(view)
	for _, ch := range c.Changes() {
		if ch.Value == nil && ch.Err == nil {
			delete(v, ch.ID)
		} else {
			v[ch.ID] = ch
		}
	}
	return v
}

// find is the object of a type with a name, nil if there is none.
func find[T any](v view, kind, name string) *T {
	for id, ch := range v {
		if id.Kind == kind && id.Name == name {
			if found, ok := ch.Value.(*T); ok {
				return found
			}
		}
	}
	return nil
}

func (v view) node(name string) *policy.Node { return find[policy.Node](v, "Node", name) }

func (v view) machine(name string) *policy.Machine { return find[policy.Machine](v, "Machine", name) }

func (v view) check(name string) *policy.Check {
	if c := find[policy.Check](v, policy.MachineHealthCheckKind, name); c != nil {
		return c
	}
	return find[policy.Check](v, policy.NodeHealthCheckKind, name)
}

func (v view) hosts() []policy.Host {
	var list []policy.Host
	for _, ch := range v {
		if h, ok := ch.Value.(*policy.Host); ok {
			list = append(list, *h)
		}
	}
	return list
}
