package k8swatch

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/policy"
)

// A check of a namespace concerns the Machines there. The controllers of OpenShift and of the Cluster
// API make its requests in that namespace, that of medik8s in the one of the template. So a kind that
// only such checks name is one of requests there, and for those Machines: whoever may write a check
// could name any kind, also one of which every Machine owns an object. // I2

// counts reports whether the requests of a kind count in a namespace. Without a check that names the
// kind nobody knows, so they do.
func (w wish) counts(namespace string) bool {
	return w.always || w.namespaces == nil || w.namespaces[namespace]
}

// setNamespaces notes where the requests of a kind count in the view. If that changed, they are told again:
// what counts no longer goes. r.mu is held.
func (r *requestKinds) setNamespaces(k requestKind, w wish) {
	var now map[string]bool
	if !w.always {
		now = w.namespaces
	}
	if before, known := r.namespaces[k]; known && maps.Equal(before, now) {
		return
	}
	r.namespaces[k] = now
	r.stores[k].journalAll()
}

// counts reports whether an object counts in the view: all do, except requests elsewhere than where
// their kind is one of requests.
func (c *Cluster) counts(id policy.ObjectID) bool {
	k := requestKind{c.work, schema.GroupKind{Group: groupOf(id.APIVersion), Kind: id.Kind}}
	if id.OnManagementAPI {
		k.side = c.manage
	}
	c.requests.mu.Lock()
	defer c.requests.mu.Unlock()
	in := c.requests.namespaces[k]
	return in == nil || in[id.Namespace]
}

// spacesOfKind lists the namespaces where requests of a kind may be for the target. wishes are those of the
// checks as they are now: the view may follow later. // I22
func (l *looker) spacesOfKind(k requestKind, wishes map[requestKind]wish) []string {
	spaces, w := l.requestSpaces(k.side.isApart()), wishes[k]
	if m := l.machineOrGone(); m != nil && l.c.sideOf(m.APIVersion) == k.side && w.counts(m.Namespace) {
		return spaces
	}
	return slices.DeleteFunc(spaces, func(namespace string) bool { return !w.counts(namespace) })
}
