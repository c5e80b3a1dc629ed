package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/fenced/fenced/test/kube"
)

// entry is one object at one version, in the encoding in which it is stored. It never changes.
type entry struct {
	key string // namespace/name, or name
	raw []byte
}

// objects are all of one kind at one revision. They never change: a write changes a copy, which shares with them what it leaves.
type objects = btree.BTree[*entry]

// change is one step in the history of a kind.
type change struct {
	revision uint64
	before   *entry   // nil if the object was created
	after    *entry   // nil if it was deleted
	objects  *objects // after the change
}

// table is the history of one kind. The lock of the store guards it.
type table struct {
	history []change      // the first one is forgotten, but for the objects after it
	news    chan struct{} // closed at the next change; nil if the kind is not served any more
}

func newTable(revision uint64) *table {
	none := btree.New(32, func(a, b *entry) bool { return a.key < b.key })
	return &table{history: []change{{revision: revision, objects: none}}, news: make(chan struct{})}
}

// latest are the objects of now.
func (t *table) latest() *objects { return t.history[len(t.history)-1].objects }

// after is how many changes of the history are not after a revision.
func (t *table) after(revision uint64) int {
	return sort.Search(len(t.history), func(i int) bool { return t.history[i].revision > revision })
}

// forget drops the changes up to a revision.
func (t *table) forget(revision uint64) {
	if n := t.after(revision); n > 0 {
		t.history = slices.Clone(t.history[n-1:])
		t.history[0] = change{revision: revision, objects: t.history[0].objects}
	}
}

// store is what etcd is to a real API server: it counts the changes of all kinds together.
type store struct {
	mu       sync.RWMutex
	revision uint64
	keep     int // changes of each kind
}

// put writes an object, or deletes it, and sets its version. A write that changes nothing leaves the version. s.mu is held.
func (s *Server) put(k *kind, key string, o object, gone bool) error {
	if k.gvk == definitions {
		if err := s.define(o, gone); err != nil {
			return err
		}
	}
	t := k.table
	if t.news == nil { // its definition was deleted since the request came
		return apierrors.NewNotFound(k.gr(), o.GetName())
	}
	before, _ := t.latest().Get(&entry{key: key})
	if before != nil && !gone { // the version in o is still the old one
		if raw, err := k.encode(o); err != nil || bytes.Equal(raw, before.raw) {
			return err
		}
	}
	s.revision++
	o.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	now := change{s.revision, before, nil, t.latest().Clone()}
	if gone {
		now.objects.Delete(before)
	} else {
		raw, err := k.encode(o)
		if err != nil {
			return err
		}
		now.after = &entry{key, slices.Clip(raw)}
		now.objects.ReplaceOrInsert(now.after)
	}
	t.history = append(t.history, now)
	if over := len(t.history) - 1 - s.keep; over > s.keep/4 { // not at each change: it copies
		t.forget(t.history[over].revision)
	}
	close(t.news)
	t.news = make(chan struct{})
	return nil
}

// at returns the objects of a kind at a revision, of now if it is 0. The store must have reached a second revision.
func (s *store) at(t *table, revision, reached uint64) (found *objects, at uint64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if most := max(revision, reached); most > s.revision {
		err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", most, s.revision), 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
		return nil, 0, err
	}
	if revision == 0 {
		return t.latest(), s.revision, nil
	}
	if n := t.after(revision); n > 0 {
		return t.history[n-1].objects, revision, nil
	}
	return nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("The resourceVersion for the provided list is too old: %d (%d)", revision, t.history[0].revision))
}

// since returns the changes of a kind after a revision, and the revision that they reach; news is that of the table.
func (s *store) since(t *table, revision uint64) (changes []change, reached uint64, news chan struct{}, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := t.after(revision)
	if n == 0 {
		return nil, 0, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, t.history[0].revision))
	}
	return t.history[n:], max(revision, s.revision), t.news, nil
}

// key is that of the object that a request is about.
func (c *call) key() string {
	if c.k.namespaced {
		return c.q.Namespace + "/" + c.q.Name
	}
	return c.q.Name
}

// live is the object that a request is about. c.s.mu is held.
func (c *call) live() (object, error) {
	if e, ok := c.k.table.latest().Get(&entry{key: c.key()}); ok {
		return c.k.decode(e, c.q.Version)
	}
	return nil, apierrors.NewNotFound(c.k.gr(), c.q.Name)
}

func (c *call) get() error {
	c.s.mu.RLock()
	o, err := c.live()
	c.s.mu.RUnlock()
	return c.answer(http.StatusOK, o, err)
}

// selection are the options of a list or a watch.
type selection struct {
	internalversion.ListOptions
	revision uint64 // resourceVersion; 0 if any will do
	prefix   string // of the keys
}

func (c *call) selection() (s selection, err error) {
	s.LabelSelector, s.FieldSelector = labels.Everything(), fields.Everything()
	if err := internalscheme.ParameterCodec.DecodeParameters(c.r.URL.Query(), metav1.SchemeGroupVersion, &s.ListOptions); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(&s.ListOptions, true)
	if errs := validation.ValidateListOptions(&s.ListOptions, true); len(errs) > 0 {
		return s, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	known := c.k.fieldsOf(c.k.empty(c.q.Version))
	for _, r := range s.FieldSelector.Requirements() {
		if !known.Has(r.Field) {
			return s, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	if c.q.Namespace != "" {
		s.prefix = c.q.Namespace + "/"
	}
	if s.revision, err = strconv.ParseUint(cmp.Or(s.ResourceVersion, "0"), 10, 64); err != nil {
		err = apierrors.NewBadRequest("resourceVersion: " + err.Error())
	}
	return s, err
}

// selected returns an object if it is selected, or nil; none is not.
func (c *call) selected(s *selection, e *entry) (object, error) {
	if e == nil || !strings.HasPrefix(e.key, s.prefix) {
		return nil, nil
	}
	o, err := c.k.decode(e, c.q.Version)
	if err != nil || !s.LabelSelector.Matches(labels.Set(o.GetLabels())) || !s.FieldSelector.Matches(c.k.fieldsOf(o)) {
		return nil, err
	}
	return o, nil
}

// page is where the next page of a list begins.
type page struct {
	Revision uint64 `json:"rv"`
	From     string `json:"start"`
}

func (c *call) list() error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	var p page
	if sel.Continue != "" {
		raw, err := base64.RawURLEncoding.DecodeString(sel.Continue)
		if err != nil || json.Unmarshal(raw, &p) != nil {
			return apierrors.NewBadRequest("continue key is not valid")
		}
	} else if sel.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		p.Revision = sel.revision
	}
	found, at, err := c.s.at(c.k.table, p.Revision, sel.revision)
	if err != nil {
		return err
	}
	gvk, list := c.k.at(c.q.Version), runtime.Object(&unstructured.UnstructuredList{})
	if gvk.Kind += "List"; c.k.sample != nil {
		if list, err = kube.Scheme.New(gvk); err != nil {
			return err
		}
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	about, items := list.(metav1.ListInterface), []runtime.Object(nil)
	about.SetResourceVersion(strconv.FormatUint(at, 10))
	found.AscendGreaterOrEqual(&entry{key: max(p.From, sel.prefix)}, func(e *entry) bool {
		var o object
		if o, err = c.selected(&sel, e); o == nil {
			return err == nil && strings.HasPrefix(e.key, sel.prefix)
		}
		if sel.Limit > 0 && len(items) == int(sel.Limit) {
			var raw []byte
			raw, err = json.Marshal(page{at, e.key})
			about.SetContinue(base64.RawURLEncoding.EncodeToString(raw))
			return false
		}
		items = append(items, o)
		return true
	})
	if err == nil {
		err = meta.SetList(list, items)
	}
	return c.answer(http.StatusOK, list, err)
}

// As on a real API server, a watch ends after half an hour or more unless the client names a time. A bookmark comes each minute, and one
// shortly before the end.
const (
	watchTime      = 30 * time.Minute
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
)

// stream is the answer to a watch.
type stream struct {
	*call
	sel selection
	at  uint64 // every change up to this revision was sent
	to  *restwatch.Encoder
}

func (c *call) watch() error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	contentType, ends := c.mediaType, watchTime
	if contentType != runtime.ContentTypeJSON {
		contentType += ";stream=watch"
	}
	c.w.Header().Set("Content-Type", contentType)
	c.w.WriteHeader(http.StatusOK)
	if sel.TimeoutSeconds != nil && *sel.TimeoutSeconds > 0 {
		ends = time.Duration(*sel.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), ends)
	defer cancel()
	as := serializerOf(c.mediaType).StreamSerializer
	to := restwatch.NewEncoder(streaming.NewEncoder(as.NewFrameWriter(c.w), as.Serializer), storedEncoder{c.encoder(c.mediaType)})
	s := &stream{c, sel, sel.revision, to}
	if err := s.run(ctx, time.Now().Add(ends)); err != nil { // it is the last event; a client that has gone does not get it
		_ = s.event(watch.Error, statusOf(err))
	}
	return nil
}

func (s *stream) run(ctx context.Context, end time.Time) error {
	if s.sel.SendInitialEvents != nil && *s.sel.SendInitialEvents {
		if err := s.initial(); err != nil {
			return err
		}
	}
	untilBookmark := func() time.Duration { return min(bookmarkEvery, time.Until(end)-bookmarkBefore) }
	bookmark := time.NewTimer(untilBookmark())
	defer bookmark.Stop()
	for due := false; ; {
		changes, reached, news, err := s.s.since(s.k.table, s.at)
		if err != nil {
			return err
		}
		_ = s.s.opts.Before(ctx, s.q) // a watch that runs gets no answer
		if ctx.Err() != nil {
			return nil
		}
		for _, c := range changes {
			if err := s.change(c); err != nil {
				return err
			}
		}
		if s.at = reached; due { // changes of other kinds have moved it on, too
			if err := s.bookmark(nil); err != nil {
				return err
			}
		}
		s.w.(http.Flusher).Flush()
		if due = false; news == nil { // the kind is not served any more
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		case <-bookmark.C:
			if due = true; time.Until(end) > bookmarkBefore {
				bookmark.Reset(untilBookmark())
			}
		}
	}
}

// initial sends the objects that there are, and to a client that asks for bookmarks one that ends them.
func (s *stream) initial() error {
	found, at, err := s.s.at(s.k.table, 0, s.sel.revision)
	if err == nil {
		found.AscendGreaterOrEqual(&entry{key: s.sel.prefix}, func(e *entry) bool {
			err = s.change(change{after: e})
			return err == nil && strings.HasPrefix(e.key, s.sel.prefix)
		})
	}
	if err != nil {
		return err
	}
	s.at = at
	return s.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// storedEncoder encodes an object that is in the encoding of the answer already by copying it. Half a million Nodes are streamed so.
type storedEncoder struct{ runtime.Encoder }

func (e storedEncoder) Encode(o runtime.Object, w io.Writer) error {
	if stored, ok := o.(*runtime.Unknown); ok {
		_, err := w.Write(stored.Raw)
		return err
	}
	return e.Encoder.Encode(o, w)
}

// asStored reports whether the client gets every object as it is stored.
func (s *stream) asStored() bool {
	return s.sel.LabelSelector.Empty() && s.sel.FieldSelector.Empty() && s.sel.prefix == "" && s.mediaType == s.k.stored() && s.q.Version == s.k.gvk.Version
}

// change sends what a change is to a client that sees the selected objects only.
func (s *stream) change(c change) error {
	if c.after != nil && s.asStored() {
		what := watch.Modified
		if c.before == nil {
			what = watch.Added
		}
		return s.event(what, &runtime.Unknown{Raw: c.after.raw})
	}
	before, err := s.selected(&s.sel, c.before)
	if err != nil {
		return err
	}
	switch after, err := s.selected(&s.sel, c.after); {
	case err != nil:
		return err
	case before != nil && after != nil:
		return s.event(watch.Modified, after)
	case after != nil:
		return s.event(watch.Added, after)
	case before != nil: // as it was last, at the version of the change
		before.SetResourceVersion(strconv.FormatUint(c.revision, 10))
		return s.event(watch.Deleted, before)
	}
	return nil
}

// bookmark tells the client the revision that it has reached.
func (s *stream) bookmark(annotations map[string]string) error {
	if !s.sel.AllowWatchBookmarks {
		return nil
	}
	o := s.k.empty(s.q.Version)
	o.SetResourceVersion(strconv.FormatUint(s.at, 10))
	o.SetAnnotations(annotations)
	return s.event(watch.Bookmark, o)
}

func (s *stream) event(what watch.EventType, o runtime.Object) error {
	return s.to.Encode(&watch.Event{Type: what, Object: o})
}
