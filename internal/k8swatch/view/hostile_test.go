package view

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
)

// The view that everything is judged by never comes from an impostor.
func TestImpostorOfTheAPIServerIsNoView(t *testing.T) { // I16
	t.Parallel()
	for name, answer := range k8stest.Impostors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked tally
			c := served(t, asked.counts(answer))
			stop := running(t, c)
			defer stop()
			k8stest.Until(t, time.Minute, "every kind was asked for again after an answer", func() bool { return asked.again(c) })
			stop()
			assert.False(t, c.View().Synced)
			assert.Empty(t, c.Changes())
		})
	}
}

// A list that never ends is given up, and what was read of it is not the view.
func TestListWithoutEndIsGivenUp(t *testing.T) {
	t.Parallel()
	var pages atomic.Int64
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) != "nodes" || r.URL.Query().Get("watch") != "" || r.URL.Query().Get("limit") == "1" {
			k8stest.Status(w, 404, "NotFound", path.Base(r.URL.Path))
			return
		}
		n := pages.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"more-%d"},"items":[]}`, n)
	})
	stop := running(t, c)
	defer stop()
	k8stest.Until(t, time.Minute, "the list is given up", func() bool {
		return strings.Contains(c.View().Problem, "objects") || pages.Load() > maxPages+10
	})
	stop()
	assert.LessOrEqual(t, pages.Load(), int64(maxPages))
	assert.False(t, c.View().Synced)
}

// endless answers every request with a beginning, and then with more and more of the
// same until the client goes away.
func endless(begin, more string, sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte(begin)); err != nil {
			return
		}
		one := int64(0)
		for chunk := []byte(strings.Repeat(more, 64<<10/len(more))); ; {
			n, err := w.Write(chunk)
			if one += int64(n); one > sent.Load() {
				sent.Store(one)
			}
			if err != nil {
				return
			}
		}
	}
}

// slack is more than what lies in the buffers between a server and a client: those of the kernel
// alone hold up to 40 MiB.
const slack = 64 << 20

// A frame of a watch that never ends is given up, too, and is no view.
func TestEndlessFrameOfAWatchEnds(t *testing.T) {
	var sent atomic.Int64
	givenUp := make(chan struct{}, 1)
	frame := endless(`{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"`, "n", &sent)
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			frame(w, r)
			select {
			case givenUp <- struct{}{}:
			default:
			}
			return
		}
		k8stest.Status(w, 404, "NotFound", "x")
	})
	stop := running(t, c)
	select {
	case <-givenUp:
	case <-time.After(time.Minute):
		assert.Fail(t, "the watch was not given up")
	}
	stop()
	assert.LessOrEqual(t, sent.Load(), int64(client.MaxObject+slack))
	assert.False(t, c.View().Synced)
	assert.Empty(t, c.Changes())
}
