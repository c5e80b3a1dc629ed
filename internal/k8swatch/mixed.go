package k8swatch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

// severalClusters returns why the Cluster API's objects cannot be evaluated; ""
// if they can. If there are several Clusters, the Nodes that we see belong to
// one. The Machines of the others would seem to have lost their Nodes, or be
// matched with a Node of the same name.
func (c *Cluster) severalClusters() string {
	var names []string
	for _, s := range c.manage.watched() {
		if s.Group == client.ClusterGroup && s.Kind == "Cluster" {
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
	return fmt.Sprintf("Clusters %s and %s are both on this API, but the Nodes belong to one of them: set management.clusterName", names[0], names[1])
}

// withholdClusterAPI replaces objects of the Cluster API with an error, so that
// they are neither evaluated nor treated as absent.
func withholdClusterAPI(ch *policy.Change, why string) {
	if ch.Value == nil || client.GroupOf(ch.ID.APIVersion) != client.ClusterGroup {
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

// journalClusterAPI journals all objects of the Cluster API again, after the
// reason to withhold them appeared or disappeared.
func (c *Cluster) journalClusterAPI() {
	for _, s := range c.manage.watched() {
		if s.Group == client.ClusterGroup {
			s.journalAll()
		}
	}
}
