package view

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

// Changed signals that the view changed, at most once until it is received.
func (c *Cache) Changed() <-chan struct{} { return c.changed }

// Changes returns every object that was added, changed or deleted since the last
// call, each once, deletions first. The first call returns all objects. Only one
// caller may use it.
func (c *Cache) Changes() []policy.Change {
	why := c.severalClusters()
	if (why != "") != c.withheld {
		c.withheld = why != ""
		c.journalClusterAPI()
	}
	list := c.journal.drain(func(id policy.ObjectID) bool {
		k := requestKind{c.work, schema.GroupKind{Group: client.GroupOf(id.APIVersion), Kind: id.Kind}}
		if id.OnManagementAPI {
			k.side = c.manage
		}
		return c.requests.counts(k, id.Namespace)
	})
	for i := range list {
		if c.withheld {
			withholdClusterAPI(&list[i], why)
		}
		if check, ok := list[i].Value.(*policy.Check); ok {
			list[i].Value = c.requests.gateCheck(check)
		}
	}
	return list
}

// journal collects changes until they are read. It keeps only the last state of
// each object, and before the first reading, for which a kind that cannot be read may keep it waiting, nothing of those that are gone.
type journal struct {
	mu      sync.Mutex
	pending map[policy.ObjectID]policy.Change
	read    bool // somebody knows of objects
}

func (j *journal) add(ch policy.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pending == nil {
		j.pending = map[policy.ObjectID]policy.Change{}
	}
	if j.pending[ch.ID] = ch; !j.read && ch.Value == nil && ch.Err == nil {
		delete(j.pending, ch.ID)
	}
}

// drain returns the changes, deletions first: an object that came back at another
// version of its kind must not be removed after it was added. One that does not count is
// as good as deleted.
func (j *journal) drain(counts func(policy.ObjectID) bool) []policy.Change {
	j.mu.Lock()
	pending := j.pending
	j.pending, j.read = nil, true
	j.mu.Unlock()
	for id := range pending {
		if !counts(id) {
			pending[id] = policy.Change{ID: id}
		}
	}
	list := make([]policy.Change, 0, len(pending))
	for _, ch := range pending {
		if ch.Value == nil && ch.Err == nil {
			list = append(list, ch)
		}
	}
	for _, ch := range pending {
		if ch.Value != nil || ch.Err != nil {
			list = append(list, ch)
		}
	}
	return list
}

// severalClusters returns why the Cluster API's objects cannot be evaluated; ""
// if they can. If there are several Clusters, the Nodes that we see belong to
// one. The Machines of the others would seem to have lost their Nodes, or be
// matched with a Node of the same name.
func (c *Cache) severalClusters() string {
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
func (c *Cache) journalClusterAPI() {
	for _, s := range c.manage.watched() {
		if s.Group == client.ClusterGroup {
			s.journalAll()
		}
	}
}
