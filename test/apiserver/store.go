package apiserver

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// entry is one object at one version, as the encoding that it is stored in. It never changes.
type entry struct {
	key string // namespace/name, or name
	raw []byte
}

// change is one step in the history of a kind. before is nil if it created the object, after if it deleted it; then
// last is the object with the version of its deletion.
type change struct {
	revision      uint64
	before, after *entry
	last          *entry
}

func (c change) key() string {
	if c.before != nil {
		return c.before.key
	}
	return c.after.key
}

// table holds the objects of one kind, and its latest changes. Its fields are guarded by the lock of the store.
type table struct {
	items   *btree.BTree[*entry]
	history []change
	floor   uint64        // the newest change that is forgotten
	news    chan struct{} // closed at the next change; nil if the kind is not served any more
}

func newTable() *table {
	return &table{items: btree.New(32, func(a, b *entry) bool { return a.key < b.key }), news: make(chan struct{})}
}

// store is what etcd is to a real API server: one revision for all kinds.
type store struct {
	mu       sync.RWMutex
	revision uint64
	keep     int // changes of each kind
}

// put writes one object, or deletes it if next is nil. encode gets the version of the object. A write that changes nothing
// leaves the version. s.mu is held.
func (s *store) put(t *table, key string, next, last object, encode func(object) ([]byte, error)) error {
	before, _ := t.items.Get(&entry{key: key})
	c := change{revision: s.revision + 1, before: before}
	written := next
	if next == nil {
		written = last
	} else if before != nil { // its version is still the old one
		if raw, err := encode(next); err != nil || bytes.Equal(raw, before.raw) {
			return err
		}
	}
	written.SetResourceVersion(strconv.FormatUint(c.revision, 10))
	raw, err := encode(written)
	if err != nil {
		return err
	}
	e := &entry{key: key, raw: slices.Clip(raw)}
	if next == nil {
		c.last = e
		t.items.Delete(before)
	} else {
		c.after = e
		t.items.ReplaceOrInsert(e)
	}
	s.revision++
	t.history = append(t.history, c)
	if over := len(t.history) - s.keep; over > s.keep/4 { // not at each change: it copies
		t.forget(t.history[over-1].revision)
	}
	t.wake()
	return nil
}

func (t *table) wake() {
	close(t.news)
	t.news = make(chan struct{})
}

// forget drops the history up to a revision.
func (t *table) forget(revision uint64) {
	at := t.after(revision)
	t.history, t.floor = slices.Clone(t.history[at:]), max(t.floor, revision)
}

// after is the index of the first change after a revision.
func (t *table) after(revision uint64) int {
	at, _ := slices.BinarySearchFunc(t.history, revision+1, func(c change, r uint64) int {
		return int(int64(c.revision) - int64(r)) //nolint:gosec // revisions are counted up from one
	})
	return at
}

// now is the revision of the last write.
func (s *store) now() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// get returns an object of now, or nil.
func (s *store) get(t *table, key string) *entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, _ := t.items.Get(&entry{key: key})
	return e
}

// list returns the objects at a revision from a key on, in the order of their keys, at least limit of them if there are so many; no
// limit if it is 0. The objects of the past are those of now with every later change undone.
func (s *store) list(t *table, namespace, from string, revision uint64, limit int) (found []*entry, at uint64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if revision == 0 {
		revision = s.revision
	}
	switch {
	case revision > s.revision:
		return nil, 0, tooLarge(revision, s.revision)
	case revision < t.floor:
		return nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("The resourceVersion for the provided list is too old: %d (%d)", revision, t.floor))
	}
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	from = max(from, prefix)
	was := map[string]*entry{}
	for _, c := range slices.Backward(t.history[t.after(revision):]) {
		was[c.key()] = c.before
	}
	t.items.AscendGreaterOrEqual(&entry{key: from}, func(e *entry) bool {
		if !strings.HasPrefix(e.key, prefix) || limit > 0 && len(found) >= limit {
			return false
		}
		if _, changed := was[e.key]; !changed {
			found = append(found, e)
		}
		return true
	})
	for key, e := range was {
		if e != nil && key >= from && strings.HasPrefix(key, prefix) {
			found = append(found, e)
		}
	}
	if len(was) > 0 {
		slices.SortFunc(found, func(a, b *entry) int { return strings.Compare(a.key, b.key) })
	}
	return found, revision, nil
}

// since returns the changes of a kind after a revision, and the revision that they reach; news is closed at the next one. It is
// nil if there will be none.
func (s *store) since(t *table, revision uint64, limit int) (changes []change, reached uint64, news chan struct{}, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if revision < t.floor {
		return nil, 0, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, t.floor))
	}
	changes = t.history[t.after(revision):]
	if len(changes) > limit {
		changes = changes[:limit]
	}
	if reached = max(revision, s.revision); len(changes) > 0 {
		reached = changes[len(changes)-1].revision
	}
	return slices.Clone(changes), reached, t.news, nil
}

// tooLarge is the answer to a request for a revision that is not reached yet.
func tooLarge(revision, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
