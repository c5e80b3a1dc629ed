package k8swatch

import "github.com/fenced/fenced/internal/policy"

// Snapshot gives the view as plain values, built anew each time.
func (c *Cluster) Snapshot() policy.Snapshot {
	snap := policy.Snapshot{Nodes: map[string]*policy.Node{}}
	for _, side := range c.sides() {
		for _, s := range side.watched() {
			s.mu.Lock()
			for _, e := range s.items {
				addTo(&snap, e)
			}
			s.mu.Unlock()
		}
	}
	for i := range snap.Checks {
		snap.Checks[i] = *c.requests.gate(&snap.Checks[i])
	}
	return snap
}

func addTo(snap *policy.Snapshot, e entry) {
	switch v := e.value.(type) {
	case *policy.Node:
		snap.Nodes[v.Name] = v
	case *policy.Machine:
		snap.Machines = append(snap.Machines, *v)
	case *policy.Check:
		snap.Checks = append(snap.Checks, *v)
	case *policy.Host:
		snap.Hosts = append(snap.Hosts, *v)
	case *policy.Cluster:
		snap.Clusters = append(snap.Clusters, *v)
	case *policy.Request:
		snap.Requests = append(snap.Requests, *v)
	case *policy.EtcdPod:
		snap.Etcd = append(snap.Etcd, *v)
	case *policy.Upgrade:
		snap.Upgrading = v.Why
	default:
		key := policy.ObjectKey{Kind: e.id.Kind, Namespace: e.id.Namespace, Name: e.id.Name}
		snap.Undecoded = append(snap.Undecoded, key)
		snap.Errors = append(snap.Errors, policy.ObjectError{Object: key.Kind + " " + key.Namespace + "/" + key.Name, Message: e.err.Error()})
	}
}
