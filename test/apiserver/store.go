package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// entry is one object at one version, in the encoding in which it is stored. It never changes.
type entry struct {
	key string // namespace/name, or name
	raw []byte
}

// change is one step in the history of a kind.
type change struct {
	revision uint64
	before   *entry // nil if the object was created
	after    *entry
	gone     bool // it was deleted; after is the object as it was last, with the version of its deletion
}

// table holds the objects of one kind, and its latest changes. The lock of the store guards it.
type table struct {
	items   *btree.BTree[*entry]
	history []change
	floor   uint64        // changes up to this revision are forgotten
	news    chan struct{} // closed at the next change; nil if the kind is not served any more
}

func newTable(floor uint64) *table {
	return &table{items: btree.New(32, func(a, b *entry) bool { return a.key < b.key }), floor: floor, news: make(chan struct{})}
}

// store is what etcd is to a real API server: it counts the changes of all kinds together.
type store struct {
	mu       sync.RWMutex
	revision uint64
	keep     int // changes of each kind
}

// errGone is the answer to a write that meets the deletion of its definition.
var errGone = errors.New("the kind is not served any more")

// put writes an object, or deletes it and keeps it as it was last. A write that changes nothing leaves the version. s.mu is held.
func (s *store) put(t *table, key string, o object, gone bool, encode func(object) ([]byte, error)) (*entry, error) {
	if t.news == nil {
		return nil, errGone
	}
	before, _ := t.items.Get(&entry{key: key})
	if before != nil && !gone { // the version in o is still the old one
		if raw, err := encode(o); err != nil || bytes.Equal(raw, before.raw) {
			return before, err
		}
	}
	o.SetResourceVersion(strconv.FormatUint(s.revision+1, 10))
	raw, err := encode(o)
	if err != nil {
		return nil, err
	}
	after := &entry{key, slices.Clip(raw)}
	if gone {
		t.items.Delete(after)
	} else {
		t.items.ReplaceOrInsert(after)
	}
	s.revision++
	t.history = append(t.history, change{s.revision, before, after, gone})
	if over := len(t.history) - s.keep; over > s.keep/4 { // not at each change: it copies
		t.forget(t.history[over-1].revision)
	}
	close(t.news)
	t.news = make(chan struct{})
	return after, nil
}

// forget drops the history up to a revision.
func (t *table) forget(revision uint64) {
	t.history, t.floor = slices.Clone(t.after(revision)), max(t.floor, revision)
}

// after are the changes after a revision.
func (t *table) after(revision uint64) []change {
	return t.history[sort.Search(len(t.history), func(i int) bool { return t.history[i].revision > revision }):]
}

// now is the revision of the last change.
func (s *store) now() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

// list returns the objects at a revision, of now if it is 0, from a key on: the first ones by their keys, limit or more of them, or all if it is 0. The
// objects of the past are those of now with every later change undone.
func (s *store) list(t *table, namespace, from string, revision uint64, limit int) (found []*entry, at uint64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if at = revision; at == 0 {
		at = s.revision
	}
	if at < t.floor || at > s.revision {
		return nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("The resourceVersion for the provided list is too old: %d (%d)", at, t.floor))
	}
	was := map[string]*entry{}
	for _, c := range slices.Backward(t.after(at)) {
		was[c.after.key] = c.before
	}
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	from = max(from, prefix)
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
	return found, at, nil
}

// since returns the changes of a kind after a revision, and the revision that they reach; news is that of the table.
func (s *store) since(t *table, revision uint64, limit int) (changes []change, reached uint64, news chan struct{}, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if revision < t.floor {
		return nil, 0, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, t.floor))
	}
	if changes = t.after(revision); len(changes) == 0 {
		return nil, max(revision, s.revision), t.news, nil
	}
	changes = slices.Clone(changes[:min(len(changes), limit)])
	return changes, changes[len(changes)-1].revision, t.news, nil
}

// reaches returns the error of a request for a revision that is not reached yet.
func (s *store) reaches(revision uint64) error {
	at := s.now()
	if revision <= at {
		return nil
	}
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, at), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
