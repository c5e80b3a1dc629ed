package k8swatch

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// running runs a Cluster until stop, which may be called again.
func running(t *testing.T, c *Cluster) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var once sync.Once
	return func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
		})
	}
}

// tally counts the requests that were answered, by path, other than those of freshness.
type tally struct {
	mu      sync.Mutex
	answers map[string]int
}

func (a *tally) counts(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		if r.URL.Query().Get("limit") == "1" {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.answers == nil {
			a.answers = map[string]int{}
		}
		a.answers[r.URL.Path]++
	}
}

// again says whether every kind that a Cluster watches was asked for three times: as a
// stream, as a list, and after the answer to that was taken in.
func (a *tally) again(c *Cluster) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	stores := c.work.watched()
	for _, s := range stores {
		path := "/api/v1/nodes"
		switch {
		case s.pods():
			path = "/api/v1/namespaces/" + s.namespace + "/pods"
		case !s.builtIn():
			path = "/apis/" + s.Group + "/" + s.gvr.Version + "/" + s.gvr.Resource // no impostor moves it
		}
		if a.answers[path] < 3 {
			return false
		}
	}
	return len(stores) > 0
}
