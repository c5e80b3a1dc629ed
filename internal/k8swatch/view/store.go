package view

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/policy"
)

// store holds the objects of one kind in one namespace (or in all) as plain
// values. What policy does not need is dropped on arrival. Changes go into the
// cluster's journal.
type store struct {
	source
	side    *side
	convert func(any) (any, error) // to a pointer to a value of internal/policy
	// keep reports whether a value belongs to our cluster; nil keeps all.
	keep func(any) bool
	log  *zap.Logger
	stop context.CancelFunc // guarded by the side's mutex
	// added is when the side began to watch it.
	added time.Time
	// absence lasts while the last answer was that the kind is not installed.
	absence absence

	mu sync.Mutex
	// gvr is where the kind is served now; without a resource it is not known yet.
	gvr     schema.GroupVersionResource
	items   map[objectName]entry
	marks   map[objectName]event.RunMark // of the items that carry one
	closed  bool
	synced  bool   // a full list was received, or the kind is not installed
	reached uint64 // the resourceVersion up to which every event was received
	asked   []freshRead
	proven  time.Time // time of the newest read that items are proven to include
	problem string    // why the last request failed; "" if proven since
	stream  watch.Interface
}

type objectName struct{ namespace, name string }

// entry is one object. If it could not be decoded, value is the error that says why;
// it is then neither evaluated nor treated as absent. Its name is only the key: half a million Nodes have an entry each.
type entry struct {
	apiVersion string
	value      any
}

// change is the object with an identity, for the journal.
func (e entry) change(id policy.ObjectID) policy.Change {
	if err, ok := e.value.(error); ok {
		return policy.Change{ID: id, Err: err}
	}
	return policy.Change{ID: id, Value: e.value}
}

// id is the identity of an object with a name and an entry.
func (s *store) id(name objectName, e entry) policy.ObjectID {
	return policy.ObjectID{APIVersion: e.apiVersion, Kind: s.Kind, Namespace: name.namespace, Name: name.name, OnManagementAPI: s.request && s.side.IsApart()}
}

var _ cache.ReflectorStore = (*store)(nil)

// decoded is an object on its way into a store.
type decoded struct {
	metav1.ObjectMeta // only names and versions
	entry
	mark *event.RunMark // nil without one
	ours bool           // false if it belongs to another cluster
}

func (d *decoded) name() objectName { return objectName{d.Namespace, d.Name} }

// Transformer implements cache.TransformingStore: objects are decoded while a
// list is still being received, so that it is never in memory as a whole.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.decode(obj) }
}

var _ cache.TransformingStore = (*store)(nil)

// decode extracts what policy needs of an object. An object that cannot be
// decoded still exists.
func (s *store) decode(obj any) (*decoded, error) {
	if d, ok := obj.(*decoded); ok {
		return d, nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("an object of kind %s without metadata: %w", s.Kind, err)
	}
	d := &decoded{ours: true}
	d.Namespace, d.Name = intern(m.GetNamespace()), m.GetName()
	d.apiVersion = "v1"
	if u, ok := obj.(*unstructured.Unstructured); ok {
		d.apiVersion = intern(u.GetAPIVersion())
	}
	d.mark = markOn(s.id(d.name(), d.entry), m)
	if _, err = revision(m.GetResourceVersion()); err == nil {
		d.value, err = s.convert(obj)
	}
	switch {
	case err != nil:
		d.value = err
	case s.keep != nil:
		d.ours = s.keep(d.value)
	}
	return d, nil
}

// revision parses resourceVersions, which Kubernetes documents as increasing
// decimal numbers.
func revision(rv string) (uint64, error) {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is not a number", rv)
	}
	return n, nil
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error {
	d, err := s.decode(obj)
	if err != nil {
		return err
	}
	if !d.ours {
		s.remove(d.name())
		return nil
	}
	s.mu.Lock()
	news := s.put(d)
	s.mu.Unlock()
	if news {
		s.notifyChange()
	}
	return nil
}

// put stores an object and journals it. An unchanged object keeps its old value,
// which others share. s.mu is held.
func (s *store) put(d *decoded) (news bool) {
	name, e := d.name(), d.entry
	old, had := s.items[name]
	if s.closed {
		return false
	}
	s.recordMark(name, d.mark)
	if had && old.apiVersion == e.apiVersion && isUnchanged(old, e) {
		return false
	}
	if had && old.apiVersion != e.apiVersion { // the kind is now served at another version
		s.side.c.journal.add(policy.Change{ID: s.id(name, old)})
	}
	s.items[name] = e
	s.side.c.journal.add(e.change(s.id(name, e)))
	return true
}

// isUnchanged compares what is kept of an object. The resourceVersion is not: a status write without a change
// must not cause a new evaluation.
func isUnchanged(old, e entry) bool {
	before, was := old.value.(error)
	if after, is := e.value.(error); was || is {
		return was && is && before.Error() == after.Error()
	}
	if after, ok := e.value.(*policy.Node); ok { // reflect takes long for labels
		before, now := *old.value.(*policy.Node), *after
		same := before.Labels.Equal(now.Labels)
		before.Labels, now.Labels = nil, nil
		return same && reflect.DeepEqual(before, now)
	}
	return reflect.DeepEqual(old.value, e.value)
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("a deleted object of kind %s without metadata: %w", s.Kind, err)
	}
	s.remove(objectName{m.GetNamespace(), m.GetName()})
	return nil
}

func (s *store) remove(name objectName) {
	s.mu.Lock()
	old, had := s.items[name]
	if had {
		s.forget(name, old)
	}
	s.mu.Unlock()
	if had {
		s.notifyChange()
	}
}

// forget drops an object that is gone; s.mu is held.
func (s *store) forget(name objectName, old entry) {
	delete(s.items, name)
	delete(s.marks, name)
	s.side.c.journal.add(policy.Change{ID: s.id(name, old)})
}

// Replace implements cache.ReflectorStore with a full list. Objects that it lacks
// are deleted, and only differences are journaled.
func (s *store) Replace(list []any, version string) error {
	at, err := revision(version)
	if err != nil {
		return err
	}
	items := make(map[objectName]*decoded, len(list))
	for _, obj := range list {
		d, err := s.decode(obj)
		if err != nil {
			return err
		}
		if d.ours {
			items[d.name()] = d
		}
	}
	s.mu.Lock()
	s.side.c.fresh.compareHistory(s.reached, at)
	news := !s.synced
	for name, old := range s.items {
		if _, still := items[name]; !still {
			s.forget(name, old)
			news = true
		}
	}
	if len(s.items) == 0 {
		s.items = make(map[objectName]entry, len(items)) // as large as it must be
	}
	for _, d := range items {
		news = s.put(d) || news
	}
	s.synced, s.reached = true, at
	s.updateProven()
	s.endStream()
	if news {
		s.notifyChange() // before anybody can see that it is proven // I16
	}
	s.mu.Unlock()
	s.notifyProgress()
	live.Signal(s.side.listed)
	return nil
}

// clear removes every object; s.mu is held.
func (s *store) clear() (had bool) {
	for name, old := range s.items {
		s.forget(name, old)
		had = true
	}
	return had
}

// close ends the store; later events are ignored.
func (s *store) close() {
	s.mu.Lock()
	had := s.clear()
	s.closed = true
	s.mu.Unlock()
	if had {
		s.notifyChange()
	}
}

// journalAll journals every object again.
func (s *store) journalAll() {
	s.mu.Lock()
	for name, e := range s.items {
		s.side.c.journal.add(e.change(s.id(name, e)))
	}
	s.mu.Unlock()
	s.notifyChange()
}

// notifyChange signals that there is something new to evaluate.
func (s *store) notifyChange() {
	if s.checks {
		live.Signal(s.side.c.requests.changed)
	}
	s.side.c.notify()
}

// notifyProgress signals that more may be proven than before.
func (s *store) notifyProgress() {
	if s.request {
		live.Signal(s.side.c.requests.changed)
	}
	s.side.c.updateFreshness(time.Now())
}

// Resync implements cache.ReflectorStore; there is nothing to resync.
func (s *store) Resync() error { return nil }

// markOn returns the mark on an object; nil if there is none. Other objects than Nodes and
// Machines carry none.
func markOn(id policy.ObjectID, m metav1.Object) *event.RunMark {
	if id.Kind != "Node" && id.Kind != "Machine" {
		return nil
	}
	all := m.GetAnnotations()
	found := false
	for _, key := range client.MarkKeys {
		_, has := all[key]
		found = found || has
	}
	if !found {
		return nil
	}
	value := func(key string) string { return bmc.Printable(all[key], client.MaxMarkValue) }
	return &event.RunMark{
		APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, UID: string(m.GetUID()),
		Run: value(client.RunAnnotation), Step: value(client.StepAnnotation), Instance: value(client.InstanceAnnotation),
	}
}

// recordMark records the mark of an object; s.mu is held.
func (s *store) recordMark(name objectName, m *event.RunMark) {
	if m == nil {
		delete(s.marks, name)
		return
	}
	s.marks[name] = *m
}

// Marked lists the Nodes and Machines of the view that carry a mark, in no order.
func (c *Cache) Marked() (list []event.RunMark) {
	for _, s := range c.stores() {
		s.mu.Lock()
		list = slices.AppendSeq(list, maps.Values(s.marks))
		s.mu.Unlock()
	}
	return list
}
