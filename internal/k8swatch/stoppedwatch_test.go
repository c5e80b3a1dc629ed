package k8swatch

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// hungStream is a stream on which nothing comes. Reading it fails when it is closed, as with HTTP/2.
type hungStream struct {
	closed chan struct{}
	once   sync.Once
}

func (h *hungStream) Decode() (watch.EventType, runtime.Object, error) {
	<-h.closed
	return "", nil, errors.New("http2: response body closed")
}

func (h *hungStream) Close() { h.once.Do(func() { close(h.closed) }) }

// AsObject implements watch.Reporter.
func (h *hungStream) AsObject(error) runtime.Object { return &metav1.Status{} }

// countEvents stops watches of the client, and counts what they still send.
func countEvents(wrap func(watch.Interface) watch.Interface) (n int) {
	for range 200 {
		h := &hungStream{closed: make(chan struct{})}
		w := wrap(watch.NewStreamWatcher(h, h))
		go w.Stop()
		for range w.ResultChan() {
			n++
		}
	}
	return n
}

// A watch that fenced stops is no failed watch: after that a reflector would list all objects again.
func TestStoppedWatchEndsWithoutAnError(t *testing.T) {
	assert.NotZero(t, countEvents(func(w watch.Interface) watch.Interface { return w }), "the client's own sends an error now and then")
	assert.Zero(t, countEvents(func(w watch.Interface) watch.Interface { return newStoppedWatch(w) }))
}

// Every watch that a reflector gets ends so, over a real connection, too.
func TestWatchesThatAreStoppedEndWithoutAnError(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for _, kind := range []string{"Node", "Pod"} { // the kinds that need no discovery
		s := c.storeOf(kind)
		lw := s.listWatch(s.side.API())
		for range 50 {
			w, err := lw.WatchFuncWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
			require.NoError(t, err)
			go w.Stop()
			for e := range w.ResultChan() {
				assert.Fail(t, "an event after the stop", "%s %v", e.Type, e.Object)
			}
		}
	}
}

// What comes before the stop is passed on in order, and an error of the server too.
func TestStoppedWatchPassesEventsOn(t *testing.T) {
	f := watch.NewFakeWithChanSize(3, false)
	f.Add(&metav1.Status{Message: "a"})
	f.Modify(&metav1.Status{Message: "b"})
	f.Error(&metav1.Status{Message: "410"})
	w := newStoppedWatch(f)
	var got []string
	for range 3 {
		e := <-w.ResultChan()
		got = append(got, string(e.Type)+" "+e.Object.(*metav1.Status).Message)
	}
	assert.Equal(t, []string{"ADDED a", "MODIFIED b", "ERROR 410"}, got)
	f.Stop() // as when the server ends it
	_, open := <-w.ResultChan()
	assert.False(t, open)
	w.Stop()
	w.Stop()
}
