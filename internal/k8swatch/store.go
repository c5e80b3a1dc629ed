package k8swatch

import (
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/fenced/fenced/internal/policy"
)

// store holds one kind of one namespace (or of all) as plain values; whatever
// policy does not need is dropped as objects come in.
type store struct {
	kind      string
	gvr       schema.GroupVersionResource // empty for Nodes
	namespace string
	convert   func(any) (any, error) // to a value of internal/policy
	log       *zap.Logger
	changed   func() // there is something new to judge
	listed    func() // a full list came
	moved     func() // more may be proven than before

	mu      sync.Mutex
	items   map[string]entry
	edits   uint64 // counts what changed items
	synced  bool   // a full list came, or the kind is not installed
	reached uint64 // the resourceVersion up to which everything is in
	asked   []asked
	proven  time.Time // the newest read that items are known to be as new as
	problem string    // why the last request failed; "" when proven since
	stream  watch.Interface
}

// entry is one object: value is nil when it could not be decoded, and err says
// why; it is then neither judged nor taken for absent.
type entry struct {
	key      policy.ObjectKey
	uid      string
	revision uint64
	value    any
	err      error
}

var _ cache.ReflectorStore = (*store)(nil)

func (s *store) entry(obj any) (string, entry, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return "", entry{}, fmt.Errorf("an object of kind %s without metadata: %w", s.kind, err)
	}
	e := entry{key: policy.ObjectKey{Kind: s.kind, Namespace: m.GetNamespace(), Name: m.GetName()}, uid: string(m.GetUID())}
	e.revision, err = revision(m.GetResourceVersion())
	if err == nil {
		e.value, err = s.convert(obj)
	}
	if err != nil {
		e.value, e.err = nil, err
	}
	return e.key.Namespace + "/" + e.key.Name, e, nil
}

// revision compares resourceVersions, which Kubernetes documents as decimal
// numbers that grow.
func revision(rv string) (uint64, error) {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is not a number", rv)
	}
	return n, nil
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore. A status that was only confirmed must
// not make a large cluster be judged again.
func (s *store) Update(obj any) error {
	key, e, err := s.entry(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	old, had := s.items[key]
	s.items[key] = e
	same := had && tellsNothingNew(old, e)
	if !same {
		s.edits++
	}
	s.mu.Unlock()
	if !same {
		s.changed()
	}
	return nil
}

// tellsNothingNew compares all that is kept of an object, except a Node's
// resourceVersion: reads past the cache give the one that writes need.
func tellsNothingNew(old, e entry) bool {
	if old.err != nil || e.err != nil {
		return old.err != nil && e.err != nil && old.err.Error() == e.err.Error()
	}
	before, ok := old.value.(*policy.Node)
	after, also := e.value.(*policy.Node)
	if !ok || !also {
		return reflect.DeepEqual(old.value, e.value)
	}
	n := *before
	n.ResourceVersion = after.ResourceVersion
	return reflect.DeepEqual(n, *after)
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	key, _, err := s.entry(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.items, key)
	s.edits++
	s.mu.Unlock()
	s.changed()
	return nil
}

// Replace implements cache.ReflectorStore: it is a full list.
func (s *store) Replace(list []any, version string) error {
	items := make(map[string]entry, len(list))
	for _, obj := range list {
		key, e, err := s.entry(obj)
		if err != nil {
			return err
		}
		items[key] = e
	}
	at, err := revision(version)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.items, s.synced, s.reached = items, true, at
	s.edits++
	s.settle()
	s.endStream()
	s.mu.Unlock()
	s.changed()
	s.moved()
	s.listed()
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to resync.
func (s *store) Resync() error { return nil }

// cachedSnapshot is the last snapshot built, and of which versions.
type cachedSnapshot struct {
	versions []uint64
	snapshot policy.Snapshot
}

// Snapshot gives the view as plain values. It is built anew only when something
// changed, and never written afterwards.
func (c *Cluster) Snapshot() policy.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := len(c.cached.versions) == len(c.stores)
	versions := make([]uint64, len(c.stores))
	for i, s := range c.stores {
		s.mu.Lock()
		versions[i] = s.edits
		s.mu.Unlock()
		fresh = fresh && c.cached.versions[i] == versions[i]
	}
	if !fresh {
		c.cached = cachedSnapshot{versions: versions, snapshot: c.build()}
	}
	return c.cached.snapshot
}

func (c *Cluster) build() policy.Snapshot {
	snap := policy.Snapshot{Nodes: map[string]*policy.Node{}}
	for _, s := range c.stores {
		s.mu.Lock()
		for _, e := range s.items {
			addTo(&snap, e)
		}
		s.mu.Unlock()
	}
	return snap
}

func addTo(snap *policy.Snapshot, e entry) {
	switch v := e.value.(type) {
	case *policy.Node:
		snap.Nodes[v.Name] = v
	case policy.Machine:
		snap.Machines = append(snap.Machines, v)
	case policy.Check:
		snap.Checks = append(snap.Checks, v)
	case policy.Host:
		snap.Hosts = append(snap.Hosts, v)
	default:
		snap.Undecoded = append(snap.Undecoded, e.key)
		snap.Errors = append(snap.Errors, policy.ObjectError{Object: e.key.Kind + " " + e.key.Namespace + "/" + e.key.Name, Message: e.err.Error()})
	}
}
