package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Of a watch, as on a real API server: it ends after half an hour unless the client names a time; a bookmark comes each minute, and
// one shortly before the end.
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
	w   http.ResponseWriter
	at  uint64 // every change up to this revision was sent
}

func (c *call) watch(w http.ResponseWriter) error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	s := &stream{call: c, sel: sel, w: w, at: sel.revision}
	contentType := c.out.mediaType
	if contentType != runtime.ContentTypeJSON {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	ends := watchTime
	if sel.TimeoutSeconds != nil && *sel.TimeoutSeconds > 0 {
		ends = time.Duration(*sel.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), ends)
	defer cancel()
	err = s.run(ctx, time.Now().Add(ends))
	if err != nil && ctx.Err() == nil { // an error of a watch is its last event
		if raw, e := c.out.encode(statusOf(err)); e == nil {
			_ = s.frame(watch.Error, raw) // else the client has gone
		}
	}
	return nil
}

func (s *stream) run(ctx context.Context, end time.Time) error {
	w, _ := s.w.(http.Flusher)
	s.w.WriteHeader(http.StatusOK)
	if s.sel.SendInitialEvents != nil && *s.sel.SendInitialEvents {
		if err := s.initial(); err != nil {
			return err
		}
	}
	w.Flush()
	bookmark := time.NewTimer(min(bookmarkEvery, time.Until(end)-bookmarkBefore))
	defer bookmark.Stop()
	for {
		changes, reached, news, err := s.s.since(s.k.table, s.at, batch)
		if err != nil {
			return err
		}
		if s.s.faults.meet(ctx, *s.q); ctx.Err() != nil {
			return nil
		}
		for _, c := range changes {
			if err := s.change(c); err != nil {
				return err
			}
		}
		if s.at = reached; len(changes) > 0 {
			w.Flush()
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
			w.Flush()
			if left := time.Until(end) - bookmarkBefore; left > 0 {
				bookmark.Reset(min(bookmarkEvery, left))
			}
		}
	}
}

// initial sends the objects that there are, and where the client asks for bookmarks one that ends them.
func (s *stream) initial() error {
	if now := s.s.now(); s.sel.revision > now {
		return tooLarge(s.sel.revision, now)
	}
	found, at, err := s.s.store.list(s.k.table, s.q.Namespace, "", 0, 0)
	if err != nil {
		return err
	}
	for _, e := range found {
		if yes, err := s.selects(&s.sel, e); err != nil {
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
	if ns := s.q.Namespace; ns != "" && !strings.HasPrefix(c.key(), ns+"/") {
		return nil
	}
	before, err := s.selects(&s.sel, c.before)
	if err != nil {
		return err
	}
	after, err := s.selects(&s.sel, c.after)
	switch {
	case err != nil || !before && !after:
		return err
	case !before:
		return s.event(watch.Added, c.after)
	case after:
		return s.event(watch.Modified, c.after)
	case c.last != nil:
		return s.event(watch.Deleted, c.last)
	}
	o, err := s.k.decode(c.before, s.q.Version) // it is selected no more
	if err != nil {
		return err
	}
	o.SetResourceVersion(strconv.FormatUint(c.revision, 10))
	return s.send(watch.Deleted, o)
}

func (s *stream) event(what watch.EventType, e *entry) error {
	raw, err := s.k.render(e, s.q.Version, s.out.mediaType)
	if err != nil {
		return err
	}
	return s.frame(what, raw)
}

func (s *stream) send(what watch.EventType, o object) error {
	raw, err := runtime.Encode(s.k.codec(s.out.mediaType, s.q.Version), o)
	if err != nil {
		return err
	}
	return s.frame(what, raw)
}

// bookmark tells the client the revision that it has reached.
func (s *stream) bookmark(annotations map[string]string) error {
	if !s.sel.AllowWatchBookmarks {
		return nil
	}
	o := s.k.empty(s.q.Version)
	o.SetResourceVersion(strconv.FormatUint(s.at, 10))
	o.SetAnnotations(annotations)
	return s.send(watch.Bookmark, o)
}

// frame sends one event.
func (s *stream) frame(what watch.EventType, raw []byte) error {
	var b bytes.Buffer
	if err := s.out.info.StreamSerializer.Encode(&metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: raw}}, &b); err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	_, err := s.out.info.StreamSerializer.NewFrameWriter(s.w).Write(b.Bytes())
	return err
}
