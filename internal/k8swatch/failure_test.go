package k8swatch

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/remediate"
)

var aRun = remediate.Run{
	Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete, Step: remediate.PowerOff,
	Target: remediate.Target{Node: "n1", NodeUID: "u1", Namespace: "ns", Machine: "m1", MachineUID: "um", BareMetalHost: "ns/h1"},
}

func TestAPIServerSaysNotFound(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/"+identityNamespace {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": identityNamespace, "uid": "c", "resourceVersion": "1"}})
			return
		}
		status(w, 404, "NotFound", path.Base(r.URL.Path))
	})
	l := c.Look(t.Context(), aRun, [][]byte{})
	require.NoError(t, l.Err)
	assert.Equal(t, remediate.APIReachable, l.Seen.API)
	assert.Equal(t, remediate.No, l.Seen.Node.Exists)
	assert.Equal(t, remediate.No, l.Seen.Machine.Exists)
	assert.Equal(t, remediate.No, l.Seen.Contested)
	assert.Equal(t, remediate.Lease{Known: true}, l.Seen.Lease)
	assert.Equal(t, remediate.No, l.Seen.PowerLock)
	assert.Equal(t, "c", l.Seen.ClusterUID)
	assert.Empty(t, l.Seen.BareMetalHostUID)
	assert.Contains(t, l.Seen.PowerForbidden, "does not exist")
}

// The kubeconfig leads to another cluster, and is pointed back during a look: what the other cluster answered must not
// count as an answer of this one. // I2, I27
func TestKubeconfigThatChangesDuringALookIsNoAnswer(t *testing.T) {
	var c *Cluster
	c = served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes/n1" {
			c.work.mu.Lock()
			again := *c.work.clients
			c.work.clients = &again
			c.work.mu.Unlock()
		}
		if r.URL.Path == "/api/v1/namespaces/"+identityNamespace {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": identityNamespace, "uid": "c", "resourceVersion": "1"}})
			return
		}
		status(w, 404, "NotFound", path.Base(r.URL.Path))
	})
	l := c.Look(t.Context(), aRun, [][]byte{})
	require.ErrorContains(t, l.Err, "changed during the look")
	assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
	assert.Empty(t, l.Seen.ClusterUID)
}

// A Node must not be taken for deleted on the word of something that is not the
// API server.
func TestErrorPageIsNoAnswer(t *testing.T) { // I2
	pages := map[string]http.HandlerFunc{
		"html":           func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no such site</html>", 404) },
		"no such path":   func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"another object": func(w http.ResponseWriter, _ *http.Request) { status(w, 404, "NotFound", "else") },
		"redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
	}
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			l := served(t, page).Look(t.Context(), aRun, [][]byte{})
			assert.Error(t, l.Err)
			assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
			assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists)
			assert.Equal(t, remediate.CannotTell, l.Seen.Machine.Exists)
			assert.Equal(t, remediate.CannotTell, l.Seen.PowerLock)
			assert.Equal(t, remediate.CannotTell, l.Seen.Contested)
			assert.False(t, l.Seen.Lease.Known)
		})
	}
}

func TestRefusedAndBrokenReads(t *testing.T) {
	for code, want := range map[int]remediate.APIState{
		401: remediate.APIForbidden, 403: remediate.APIForbidden, 500: remediate.APIUnreachable, 503: remediate.APIUnreachable,
	} {
		c := served(t, func(w http.ResponseWriter, _ *http.Request) { status(w, code, http.StatusText(code), "") })
		l := c.Look(t.Context(), aRun, nil)
		assert.Equal(t, want, l.Seen.API, code)
		assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists, code)
	}
}

func TestOneRefusalDoesNotHideTheRest(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/leases/n1") {
			status(w, 403, "Forbidden", "n1")
			return
		}
		status(w, 404, "NotFound", path.Base(r.URL.Path))
	})
	l := c.Look(t.Context(), aRun, nil)
	assert.Equal(t, remediate.APIForbidden, l.Seen.API)
	assert.False(t, l.Seen.Lease.Known)
	assert.Equal(t, remediate.No, l.Seen.Node.Exists)
	assert.ErrorContains(t, l.Err, "the Lease of Node n1")
}

func TestHangEndsWithTheCaller(t *testing.T) {
	c := served(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	l := c.Look(ctx, aRun, nil)
	assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
}

func TestReadsAskPastTheCache(t *testing.T) { // I4
	var cached atomic.Int32
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("resourceVersion") {
			cached.Add(1)
		}
		status(w, 404, "NotFound", path.Base(r.URL.Path))
	})
	run := aRun
	run.Step = remediate.PowerOn
	c.Look(t.Context(), run, nil)
	assert.Zero(t, cached.Load(), "no read may name a resourceVersion")
}

func TestTokenIsNotSentWhereARedirectPoints(t *testing.T) {
	var got atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	defer thief.Close()
	c := served(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, thief.URL, http.StatusFound) })
	assert.Error(t, c.Look(t.Context(), aRun, nil).Err)
	assert.Zero(t, got.Load())
}

func TestAnswerWithoutEndIsRefused(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for range maxBody>>20 + 2 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	_, _, err := c.Backup(t.Context(), aRun.Target)
	assert.ErrorIs(t, err, errBodyTooLarge)
}

func TestBadKubeconfig(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	for _, file := range []string{"", filepath.Join(dir, "missing"), broken} {
		_, err := New(Config{Name: "c", Kubeconfig: file, FreshEvery: time.Second}, zap.NewNop())
		assert.ErrorContains(t, err, "kubeconfig")
	}
}

func TestChangedKubeconfigIsTakenUp(t *testing.T) {
	var before, after atomic.Int32
	answer := func(n *atomic.Int32) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { n.Add(1); status(w, 503, "ServiceUnavailable", "") }
	}
	c := served(t, answer(&before))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	until(t, time.Minute, "the first server is asked", func() bool { return before.Load() > 0 })

	require.NoError(t, os.WriteFile(c.cfg.Kubeconfig, []byte("{"), 0o600))
	asked := before.Load()
	until(t, time.Minute, "a broken file changes nothing", func() bool { return before.Load() > asked+4 })
	second := httptest.NewServer(answer(&after))
	defer second.Close()
	text, err := os.ReadFile(kubeconfigFor(t, second.URL))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.cfg.Kubeconfig, text, 0o600))
	until(t, time.Minute, "the second server is asked", func() bool { return after.Load() > 0 })
	cancel()
	require.NoError(t, <-done)
}

// Whoever could write the kubeconfig could lead the daemon to a cluster of his own.
func TestChangedKubeconfigThatEverybodyMayWriteIsNotTakenUp(t *testing.T) {
	var before, after, refused atomic.Int32
	answer := func(n *atomic.Int32) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { n.Add(1); status(w, 503, "ServiceUnavailable", "") }
	}
	c := served(t, answer(&before))
	c.cfg.Guard = func(path string) error {
		err := config.CheckGuarded(path)
		if err != nil {
			refused.Add(1)
		}
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()

	second := httptest.NewServer(answer(&after))
	defer second.Close()
	text, err := os.ReadFile(kubeconfigFor(t, second.URL))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(c.cfg.Kubeconfig, 0o666))
	require.NoError(t, os.WriteFile(c.cfg.Kubeconfig, append(text, '\n'), 0o666))
	until(t, time.Minute, "the changed file is refused", func() bool { return refused.Load() > 1 })
	_, err = New(c.cfg, zap.NewNop())
	require.ErrorContains(t, err, "everybody may write "+c.cfg.Kubeconfig)
	require.Zero(t, after.Load())

	require.NoError(t, os.Chmod(c.cfg.Kubeconfig, 0o600))
	until(t, time.Minute, "the second server is asked", func() bool { return after.Load() > 0 })
	cancel()
	require.NoError(t, <-done)
}

func TestActRefusesWithoutTheUIDDecidedOn(t *testing.T) { // I2
	var requests atomic.Int32
	c := served(t, func(w http.ResponseWriter, _ *http.Request) { requests.Add(1); status(w, 500, "InternalError", "") })
	ctx := t.Context()
	for name, b := range map[string]remediate.Backup{
		"none": {}, "no version": {UID: "u1"}, "another Node": {UID: "u2", ResourceVersion: "1"},
	} {
		assert.Error(t, c.Act(ctx, aRun, remediate.IsolateNode, nil, b), name)
	}
	nameless := aRun
	nameless.Target.MachineUID = ""
	assert.Error(t, c.Act(ctx, nameless, remediate.DeleteTargetMachine, nil, remediate.Backup{}))
	assert.Error(t, c.Act(ctx, nameless, remediate.ClearRequest, nil, remediate.Backup{}))
	assert.Error(t, c.Act(ctx, aRun, remediate.SendOff, nil, remediate.Backup{}))
	assert.Zero(t, requests.Load(), "nothing may reach the API server")
}
