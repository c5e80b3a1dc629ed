package k8stest

import (
	"sync"

	"github.com/fenced/fenced/internal/policy"
)

// told are what tests have been told by each watch: the changes are given out once, and several assertions look at them.
var told sync.Map

// Objects are everything that a watch has told so far.
type Objects map[policy.ObjectID]policy.Change

// Seen takes what changed and gives the whole view.
func Seen(watch interface{ Changes() []policy.Change }) Objects {
	kept, _ := told.LoadOrStore(watch, Objects{})
	v := kept.(Objects)
	v.Take(watch.Changes())
	return v
}

// Take takes changes as the engine does, and says whether all removals came first.
func (v Objects) Take(changes []policy.Change) bool {
	removals, inOrder := true, true
	for _, ch := range changes {
		gone := ch.Value == nil && ch.Err == nil
		inOrder, removals = inOrder && (removals || !gone), gone
		if gone {
			delete(v, ch.ID)
		} else {
			v[ch.ID] = ch
		}
	}
	return inOrder
}

// Find is the object of a type with a name, nil if there is none.
func Find[T any](v Objects, kind, name string) *T {
	for id, ch := range v {
		if found, ok := ch.Value.(*T); ok && id.Kind == kind && id.Name == name {
			return found
		}
	}
	return nil
}

// Node is the Node with a name, nil if there is none.
func (v Objects) Node(name string) *policy.Node { return Find[policy.Node](v, "Node", name) }

// Machine is the Machine with a name, nil if there is none.
func (v Objects) Machine(name string) *policy.Machine {
	return Find[policy.Machine](v, "Machine", name)
}

// Check is the check with a name, nil if there is none.
func (v Objects) Check(name string) *policy.Check {
	if c := Find[policy.Check](v, policy.MachineHealthCheckKind, name); c != nil {
		return c
	}
	return Find[policy.Check](v, policy.NodeHealthCheckKind, name)
}

// Hosts are the BareMetalHosts.
func (v Objects) Hosts() (list []policy.Host) {
	for _, ch := range v {
		if h, ok := ch.Value.(*policy.Host); ok {
			list = append(list, *h)
		}
	}
	return list
}
