package view

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/policy"
)

// A busy machine delays an API server by many seconds.
func init() { client.RequestTimeout = 20 * time.Second }

// served is a Cache whose API server is this handler: only for answers that a
// real API server does not give on demand.
func served(t *testing.T, h http.HandlerFunc) *Cache {
	t.Helper()
	c, err := New(Config{Name: "test", Kubeconfig: k8stest.Served(t, h), FreshEvery: time.Second}, zap.NewNop())
	require.NoError(t, err)
	return c
}

// running runs a Cache until stop, which may be called again.
func running(t *testing.T, c *Cache) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// views are what tests have been told of each Cache: the changes are given
// out once, and several assertions look at them.
var views sync.Map

// objects are everything a Cache has told so far.
type objects map[policy.ObjectID]policy.Change

// seen takes what changed and gives the whole view.
func seen(c *Cache) objects {
	kept, _ := views.LoadOrStore(c, objects{})
	v := kept.(objects)
	for _, ch := range c.Changes() {
		if ch.Value == nil && ch.Err == nil {
			delete(v, ch.ID)
		} else {
			v[ch.ID] = ch
		}
	}
	return v
}

// find is the object of a type with a name, nil if there is none.
func find[T any](v objects, kind, name string) *T {
	for id, ch := range v {
		if id.Kind == kind && id.Name == name {
			if found, ok := ch.Value.(*T); ok {
				return found
			}
		}
	}
	return nil
}

func (v objects) node(name string) *policy.Node { return find[policy.Node](v, "Node", name) }

func (v objects) machine(name string) *policy.Machine {
	return find[policy.Machine](v, "Machine", name)
}

func (v objects) check(name string) *policy.Check {
	if c := find[policy.Check](v, policy.MachineHealthCheckKind, name); c != nil {
		return c
	}
	return find[policy.Check](v, policy.NodeHealthCheckKind, name)
}

func (v objects) hosts() []policy.Host {
	var list []policy.Host
	for _, ch := range v {
		if h, ok := ch.Value.(*policy.Host); ok {
			list = append(list, *h)
		}
	}
	return list
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

// again says whether every kind that a Cache watches was asked for three times: as a
// stream, as a list, and after the answer to that was taken in.
func (a *tally) again(c *Cache) bool {
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
