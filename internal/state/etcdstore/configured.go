package etcdstore

import (
	"context"
	"slices"
	"sync"
)

// configured are the clusters that this instance is configured for, in the order in which they were
// added. A reload changes them while the instance owns clusters.
type configured struct {
	mu   sync.Mutex
	list []*configuredCluster
}

type configuredCluster struct {
	name string
	stop context.CancelFunc // ends the last callback; nil: there was none
	done chan struct{}      // closed when that has returned
}

func (c *configured) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, one := range c.list {
		names = append(names, one.name)
	}
	return names
}

// find returns the cluster of a name; nil if there is none. The caller holds c.mu.
func (c *configured) find(name string) *configuredCluster {
	if i := slices.IndexFunc(c.list, func(one *configuredCluster) bool { return one.name == name }); i >= 0 {
		return c.list[i]
	}
	return nil
}

// beginCallback notes the callback that is about to begin. It returns false if the cluster was
// removed: then the callback must not begin.
func (c *configured) beginCallback(name string, stop context.CancelFunc, done chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.find(name)
	if one != nil {
		one.stop, one.done = stop, done
	}
	return one != nil
}

// Add implements state.Owners. The key of the instance names the cluster before the instance claims
// it.
func (i *instance) Add(cluster string) {
	i.mu.Lock()
	delete(i.aside, cluster) // of the time before it was removed
	i.mu.Unlock()
	i.configured.mu.Lock()
	i.configured.list = append(i.configured.list, &configuredCluster{name: cluster})
	i.configured.mu.Unlock()
	signal(i.changed)
}

// Remove implements state.Owners. The claim ends at once, whatever the store does. Another instance
// can claim the cluster only when this one has released it, or has lost its session. // I19
func (i *instance) Remove(cluster string) {
	i.configured.mu.Lock()
	one := i.configured.find(cluster)
	i.configured.list = slices.DeleteFunc(i.configured.list, func(each *configuredCluster) bool { return each == one })
	i.configured.mu.Unlock()
	if one != nil && one.done != nil {
		one.stop()
		<-one.done
	}
	signal(i.changed)
}

// concerned are the clusters that this instance is configured for, and those that it still has to
// release: a claim whose answer was lost may be known only by its key.
func (o *ownership) concerned() []string {
	names := o.configured.names()
	add := func(cluster string) {
		if !slices.Contains(names, cluster) {
			names = append(names, cluster)
		}
	}
	for cluster := range o.owned {
		add(cluster)
	}
	for cluster, owner := range o.view.owners {
		if owner.lease == o.sess.id {
			add(cluster)
		}
	}
	return names
}
