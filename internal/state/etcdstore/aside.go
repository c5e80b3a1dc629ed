package etcdstore

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// asideAfter is how many times MinOwnership an instance keeps a cluster before it steps aside.
const asideAfter = 5

// StepAside implements state.Owners. The key of an instance does not name the clusters that the
// instance leaves to the others. So the others, also older versions, take it for an instance that
// is not configured for them. It begins to step aside when that key has been written.
func (i *instance) StepAside(cluster string, aside bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.aside[cluster] != aside {
		i.aside[cluster] = aside
		signal(i.changed)
	}
	return true
}

// isAside returns whether this instance leaves a cluster to the others.
func (i *instance) isAside(cluster string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.aside[cluster]
}

// wanted are the clusters that this instance would own.
func (i *instance) wanted() []string {
	list := []string{}
	for _, cluster := range i.configured.names() {
		if !i.isAside(cluster) {
			list = append(list, cluster)
		}
	}
	return list
}

// publishWanted writes the key of the instance again if it wants other clusters than the key says.
// The key keeps its create revision and its lease.
func (o *ownership) publishWanted(ctx context.Context) error {
	wanted := o.wanted()
	entry, found := o.view.instances[o.Instance]
	if !found || slices.Equal(entry.clusters, wanted) {
		return nil
	}
	key := o.store.instanceKey(o.Instance)
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	_, err := o.store.client.Txn(attempt).If(clientv3.Compare(clientv3.CreateRevision(key), "=", o.registered)).
		Then(clientv3.OpPut(key, mustEncode(instanceValue{Clusters: wanted}), clientv3.WithLease(o.sess.id))).Commit()
	if err != nil {
		return fmt.Errorf("say which clusters instance %q wants: %w", o.Instance, err)
	}
	return nil // the watch shows it
}
