package apiserver

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

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
	for {
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
		s.w.(http.Flusher).Flush()
		if s.at = reached; len(changes) > 0 {
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
			if err := s.bookmark(nil); err != nil {
				return err
			}
			if left := time.Until(end) - bookmarkBefore; left > 0 {
				bookmark.Reset(min(bookmarkEvery, left))
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
