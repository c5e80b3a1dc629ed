package client

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/test/pace"
)

// The server of one API group, which the author of a check may have named, hangs: nobody who asks about another group waits for it, and who asks
// about this one waits no longer than its own time. What was answered long ago is not kept.
func TestGroupThatHangsDelaysNoOther(t *testing.T) {
	pace.Once(t, RequestTimeout, func() { askBesideAGroupThatHangs(t) })
}

func askBesideAGroupThatHangs(t *testing.T) {
	t.Helper()
	asked := make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	s := NewServer("workload", k8stest.Served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/hangs.example.com" {
			once()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[]}`)
	}), false, nil, zap.NewNop())
	require.NoError(t, s.Connect())
	const former = "former.example.com"
	s.discovery.groups = map[string]groupAnswer{former: {at: time.Now().Add(-discoveryFor)}}
	var g sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer g.Wait()
	defer cancel()
	g.Go(func() { _, _ = s.Find(ctx, Resource{Kind: "Some", Group: "hangs.example.com"}) })
	<-asked
	_, err := s.Find(t.Context(), Resource{Kind: "Other", Group: "example.com"})
	require.ErrorIs(t, err, ErrNotInstalled)
	impatient, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	_, err = s.Find(impatient, Resource{Kind: "Some", Group: "hangs.example.com"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	s.discovery.mu.Lock()
	defer s.discovery.mu.Unlock()
	assert.NotContains(t, s.discovery.groups, former)
}
