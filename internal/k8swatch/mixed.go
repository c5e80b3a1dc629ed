package k8swatch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fenced/fenced/internal/policy"
)

// mixed says why the Cluster API's objects cannot be judged: several Clusters
// are here, and the Nodes that we see are of one. The Machines of the others
// would look as if they had lost theirs, or be taken for another's of the same
// name.
func (c *Cluster) mixed() string {
	var names []string
	for _, s := range c.manage.watched() {
		if s.group == clusterGroup && s.kind == "Cluster" {
			s.mu.Lock()
			for name := range s.items {
				names = append(names, name.namespace+"/"+name.name)
			}
			s.mu.Unlock()
		}
	}
	if len(names) < 2 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("Clusters %s and %s are both here, and the Nodes are of one: set management.clusterName", names[0], names[1])
}

// bar takes what belongs to one of several Clusters out of what is judged, but
// not for absent.
func bar(ch *policy.Change, why string) {
	if ch.Value == nil || groupOf(ch.ID.APIVersion) != clusterGroup {
		return
	}
	switch v := ch.Value.(type) {
	case *policy.Machine:
		ch.Value, ch.Err = nil, errors.New(why)
	case *policy.Check:
		barred := *v
		barred.Invalid = why
		ch.Value = &barred
	}
}

// tellAgain journals everything of the Cluster API once more: what bars it came
// or went.
func (c *Cluster) tellAgain() {
	for _, s := range c.manage.watched() {
		if s.group == clusterGroup {
			s.again()
		}
	}
}
