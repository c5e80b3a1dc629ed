package apiserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fenced/fenced/test/kube"
)

// key is that of the object that a request is about.
func (c *call) key() string {
	if c.k.namespaced {
		return c.q.Namespace + "/" + c.q.Name
	}
	return c.q.Name
}

// stored returns the object that a request is about. c.s.mu is held.
func (c *call) stored() (*entry, error) {
	if e, ok := c.k.table.items.Get(&entry{key: c.key()}); ok {
		return e, nil
	}
	return nil, apierrors.NewNotFound(c.k.gr(), c.q.Name)
}

func (c *call) get() error {
	c.s.mu.RLock()
	e, err := c.stored()
	c.s.mu.RUnlock()
	return c.entry(http.StatusOK, e, err)
}

// selection are the options of a list or a watch.
type selection struct {
	internalversion.ListOptions
	revision uint64 // resourceVersion; 0 if any will do
	all      bool   // every object is selected
}

func (c *call) selection() (s selection, err error) {
	if err := internalscheme.ParameterCodec.DecodeParameters(c.r.URL.Query(), metav1.SchemeGroupVersion, &s.ListOptions); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(&s.ListOptions, true)
	if errs := validation.ValidateListOptions(&s.ListOptions, true); len(errs) > 0 {
		return s, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if s.LabelSelector == nil {
		s.LabelSelector = labels.Everything()
	}
	if s.FieldSelector == nil {
		s.FieldSelector = fields.Everything()
	}
	known := c.k.fieldsOf(c.k.empty(c.q.Version))
	for _, r := range s.FieldSelector.Requirements() {
		if !known.Has(r.Field) {
			return s, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	s.all = s.LabelSelector.Empty() && s.FieldSelector.Empty()
	if s.ResourceVersion != "" {
		if s.revision, err = strconv.ParseUint(s.ResourceVersion, 10, 64); err != nil {
			return s, apierrors.NewBadRequest("Invalid value: " + strconv.Quote(s.ResourceVersion) + ": " + err.Error())
		}
	}
	return s, nil
}

// selected reports whether an object is selected; none is not.
func (c *call) selected(s *selection, e *entry) (bool, error) {
	if e == nil || s.all {
		return e != nil, nil
	}
	o, err := c.k.decode(e, c.q.Version)
	return err == nil && s.LabelSelector.Matches(labels.Set(o.GetLabels())) && s.FieldSelector.Matches(c.k.fieldsOf(o)), err
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
	switch {
	case sel.Continue != "":
		raw, err := base64.RawURLEncoding.DecodeString(sel.Continue)
		if err != nil || json.Unmarshal(raw, &p) != nil {
			return apierrors.NewBadRequest("continue key is not valid")
		}
	case sel.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		p.Revision = sel.revision
	}
	if err := c.s.reaches(max(sel.revision, p.Revision)); err != nil {
		return err
	}
	fetch, limit := 0, int(sel.Limit)
	if limit > 0 && sel.all {
		fetch = limit + 1
	}
	found, at, err := c.s.store.list(c.k.table, c.q.Namespace, p.From, p.Revision, fetch)
	if err != nil {
		return err
	}
	var items []runtime.Object
	m := metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10)}
	for _, e := range found {
		if yes, err := c.selected(&sel, e); err != nil {
			return err
		} else if !yes {
			continue
		}
		if limit > 0 && len(items) == limit {
			raw, err := json.Marshal(page{at, e.key})
			if err != nil {
				return err
			}
			m.Continue = base64.RawURLEncoding.EncodeToString(raw)
			break
		}
		o, err := c.k.decode(e, c.q.Version)
		if err != nil {
			return err
		}
		items = append(items, o)
	}
	return c.answerList(items, m)
}

// answerList answers with a list of objects.
func (c *call) answerList(items []runtime.Object, m metav1.ListMeta) (err error) {
	gvk := c.k.at(c.q.Version)
	gvk.Kind += "List"
	var list runtime.Object = &unstructured.UnstructuredList{}
	if c.k.sample != nil {
		if list, err = kube.Scheme.New(gvk); err != nil {
			return err
		}
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	about, err := meta.ListAccessor(list)
	if err == nil {
		about.SetResourceVersion(m.ResourceVersion)
		about.SetContinue(m.Continue)
		err = meta.SetList(list, items)
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, list)
}

// As on a real API server, a watch ends after half an hour or more unless the client names a time. A bookmark comes each minute, and one
// shortly before the end.
const (
	watchTime      = 30 * time.Minute
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	batch          = 256
)

// stream is the answer to a watch.
type stream struct {
	*call
	sel selection
	at  uint64 // every change up to this revision was sent
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
	s := &stream{c, sel, sel.revision}
	if err := s.run(ctx, time.Now().Add(ends)); err != nil { // it is the last event; a client that has gone does not get it
		raw, err := c.encoded(statusOf(err))
		_ = s.frame(watch.Error, raw, err)
	}
	return nil
}

func (s *stream) run(ctx context.Context, end time.Time) error {
	if s.sel.SendInitialEvents != nil && *s.sel.SendInitialEvents {
		if err := s.initial(); err != nil {
			return err
		}
	}
	bookmark := time.NewTimer(min(bookmarkEvery, time.Until(end)-bookmarkBefore))
	defer bookmark.Stop()
	for due := false; ; {
		changes, reached, news, err := s.s.since(s.k.table, s.at, batch)
		if err != nil {
			return err
		}
		_ = s.s.faults.meet(ctx, *s.q) // a watch that runs gets no answer
		if ctx.Err() != nil {
			return nil
		}
		for _, c := range changes {
			if err := s.change(c); err != nil {
				return err
			}
		}
		if s.at = reached; due && len(changes) == 0 { // changes of other kinds have moved it on, too
			if err := s.bookmark(nil); err != nil {
				return err
			}
			due = false
		}
		s.w.(http.Flusher).Flush()
		if len(changes) > 0 {
			continue
		}
		if news == nil { // the kind is not served any more
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		case <-bookmark.C:
			if due = true; time.Until(end) > bookmarkBefore {
				bookmark.Reset(min(bookmarkEvery, time.Until(end)-bookmarkBefore))
			}
		}
	}
}

// initial sends the objects that there are, and to a client that asks for bookmarks one that ends them.
func (s *stream) initial() error {
	if err := s.s.reaches(s.sel.revision); err != nil {
		return err
	}
	found, at, err := s.s.store.list(s.k.table, s.q.Namespace, "", 0, 0)
	if err != nil {
		return err
	}
	for _, e := range found {
		if yes, err := s.selected(&s.sel, e); err != nil {
			return err
		} else if yes {
			if err := s.event(watch.Added, e); err != nil {
				return err
			}
		}
	}
	s.at = at
	return s.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// change sends what a change is to a client that sees the selected objects only.
func (s *stream) change(c change) error {
	if ns := s.q.Namespace; ns != "" && !strings.HasPrefix(c.after.key, ns+"/") {
		return nil
	}
	before, err := s.selected(&s.sel, c.before)
	if err != nil {
		return err
	}
	after, err := s.selected(&s.sel, c.after)
	switch {
	case err != nil:
		return err
	case c.gone && before:
		return s.event(watch.Deleted, c.after)
	case c.gone || !before && !after:
		return nil
	case !before:
		return s.event(watch.Added, c.after)
	case after:
		return s.event(watch.Modified, c.after)
	}
	o, err := s.k.decode(c.before, s.q.Version) // it is selected no more
	if err != nil {
		return err
	}
	o.SetResourceVersion(strconv.FormatUint(c.revision, 10))
	return s.object(watch.Deleted, o)
}

// bookmark tells the client the revision that it has reached.
func (s *stream) bookmark(annotations map[string]string) error {
	if !s.sel.AllowWatchBookmarks {
		return nil
	}
	o := s.k.empty(s.q.Version)
	o.SetResourceVersion(strconv.FormatUint(s.at, 10))
	o.SetAnnotations(annotations)
	return s.object(watch.Bookmark, o)
}

func (s *stream) event(what watch.EventType, e *entry) error {
	raw, err := s.k.render(e, s.q.Version, s.mediaType)
	return s.frame(what, raw, err)
}

func (s *stream) object(what watch.EventType, o object) error {
	raw, err := runtime.Encode(s.k.codec(s.mediaType, s.q.Version), o)
	return s.frame(what, raw, err)
}

// frame sends one event, unless there is an error.
func (s *stream) frame(what watch.EventType, raw []byte, err error) error {
	if err != nil {
		return err
	}
	var b bytes.Buffer
	as := serializerOf(s.mediaType).StreamSerializer
	if err := as.Encode(&metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: raw}}, &b); err != nil {
		return err
	}
	_, err = as.NewFrameWriter(s.w).Write(b.Bytes())
	return err
}
