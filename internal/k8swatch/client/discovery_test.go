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
)

// The server of one API group, which the author of a check may have named, hangs: nobody who asks about another group waits for it, and who asks
// about this one waits no longer than its own time. What was answered long ago is not kept.
func TestGroupThatHangsDelaysNoOther(t *testing.T) {
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
	s.discovery.groups = map[string]groupAnswer{"former.example.com": {at: time.Now().Add(-discoveryFor)}}
	var g sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer g.Wait()
	defer cancel()
	g.Go(func() { _, _ = s.Find(ctx, Resource{Kind: "Some", Group: "hangs.example.com"}) })
	<-asked
	began := time.Now()
	_, err := s.Find(t.Context(), Resource{Kind: "Other", Group: "example.com"})
	require.ErrorIs(t, err, ErrNotInstalled)
	impatient, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	_, err = s.Find(impatient, Resource{Kind: "Some", Group: "hangs.example.com"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(began), RequestTimeout)
	assert.Len(t, s.discovery.groups, 1)
}
