package k8swatch

import (
	"context"
	"encoding/json"
	"fmt"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/k8swatch/k8stest"
	"github.com/fenced/fenced/internal/k8swatch/view"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

var aRun = remediate.Run{
	Strategy: remediate.PowerCycle, Isolation: remediate.IsolateDelete, Step: remediate.PowerOff,
	Target: remediate.Target{Node: "n1", NodeUID: "u1", Namespace: "ns", Machine: "m1", MachineUID: "um", BareMetalHost: "ns/h1"},
}

func TestAPIServerSaysNotFound(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/"+client.IdentityNamespace {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": client.IdentityNamespace, "uid": "c", "resourceVersion": "1"}})
			return
		}
		k8stest.Status(w, 404, "NotFound", path.Base(r.URL.Path))
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
			assert.NoError(t, c.servers.Work.Connect())
		}
		if r.URL.Path == "/api/v1/namespaces/"+client.IdentityNamespace {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": client.IdentityNamespace, "uid": "c", "resourceVersion": "1"}})
			return
		}
		k8stest.Status(w, 404, "NotFound", path.Base(r.URL.Path))
	})
	l := c.Look(t.Context(), aRun, [][]byte{})
	require.ErrorContains(t, l.Err, "changed during the look")
	assert.Equal(t, remediate.APIUnreachable, l.Seen.API)
	assert.Empty(t, l.Seen.ClusterUID)
}

func TestRefusedAndBrokenReads(t *testing.T) {
	for code, want := range map[int]remediate.APIState{
		401: remediate.APIForbidden, 403: remediate.APIForbidden, 500: remediate.APIUnreachable, 503: remediate.APIUnreachable,
	} {
		c := served(t, func(w http.ResponseWriter, _ *http.Request) { k8stest.Status(w, code, http.StatusText(code), "") })
		l := c.Look(t.Context(), aRun, nil)
		assert.Equal(t, want, l.Seen.API, code)
		assert.Equal(t, remediate.CannotTell, l.Seen.Node.Exists, code)
	}
}

func TestOneRefusalDoesNotHideTheRest(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/leases/n1") {
			k8stest.Status(w, 403, "Forbidden", "n1")
			return
		}
		k8stest.Status(w, 404, "NotFound", path.Base(r.URL.Path))
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
		k8stest.Status(w, 404, "NotFound", path.Base(r.URL.Path))
	})
	run := aRun
	run.Step = remediate.PowerOn
	c.Look(t.Context(), run, nil)
	assert.Zero(t, cached.Load(), "no read may name a resourceVersion")
}

func TestAnswerWithoutEndIsRefused(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for range client.MaxBody>>20 + 2 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	_, _, err := c.Backup(t.Context(), aRun.Target)
	assert.ErrorIs(t, err, client.ErrBodyTooLarge)
}

func TestBadKubeconfig(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	for _, file := range []string{"", filepath.Join(dir, "missing"), broken} {
		_, err := New(Config{Config: view.Config{Name: "c", Kubeconfig: file, FreshEvery: time.Second}}, zap.NewNop())
		assert.ErrorContains(t, err, "kubeconfig")
	}
}

func TestChangedKubeconfigIsTakenUp(t *testing.T) {
	var before, after atomic.Int32
	answer := func(n *atomic.Int32) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			k8stest.Status(w, 503, "ServiceUnavailable", "")
		}
	}
	c := served(t, answer(&before))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	k8stest.Until(t, "the first server is asked", func() bool { return before.Load() > 0 })

	require.NoError(t, os.WriteFile(c.servers.Work.Kubeconfig, []byte("{"), 0o600))
	asked := before.Load()
	k8stest.Until(t, "a broken file changes nothing", func() bool { return before.Load() > asked+4 })
	second := httptest.NewServer(answer(&after))
	defer second.Close()
	text := must.Do(os.ReadFile(k8stest.Kubeconfig(t, second.URL)))(t)
	require.NoError(t, os.WriteFile(c.servers.Work.Kubeconfig, text, 0o600))
	k8stest.Until(t, "the second server is asked", func() bool { return after.Load() > 0 })
	cancel()
	require.NoError(t, <-done)
}

// Whoever could write the kubeconfig could lead the daemon to a cluster of his own.
func TestChangedKubeconfigThatEverybodyMayWriteIsNotTakenUp(t *testing.T) {
	var before, after, refused atomic.Int32
	answer := func(n *atomic.Int32) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			k8stest.Status(w, 503, "ServiceUnavailable", "")
		}
	}
	first := httptest.NewServer(answer(&before))
	defer first.Close()
	cfg := Config{Config: view.Config{Name: "test", Kubeconfig: k8stest.Kubeconfig(t, first.URL), FreshEvery: time.Second, Guard: func(path string) error {
		err := config.CheckGuarded(path)
		if err != nil {
			refused.Add(1)
		}
		return err
	}}}
	c := must.Do(New(cfg, zap.NewNop()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()

	second := httptest.NewServer(answer(&after))
	defer second.Close()
	text := must.Do(os.ReadFile(k8stest.Kubeconfig(t, second.URL)))(t)
	require.NoError(t, os.Chmod(c.servers.Work.Kubeconfig, 0o666))
	require.NoError(t, os.WriteFile(c.servers.Work.Kubeconfig, append(text, '\n'), 0o666))
	k8stest.Until(t, "the changed file is refused", func() bool { return refused.Load() > 1 })
	_, err := New(cfg, zap.NewNop())
	require.ErrorContains(t, err, "everybody may write "+c.servers.Work.Kubeconfig)
	require.Zero(t, after.Load())

	require.NoError(t, os.Chmod(c.servers.Work.Kubeconfig, 0o600))
	k8stest.Until(t, "the second server is asked", func() bool { return after.Load() > 0 })
	cancel()
	require.NoError(t, <-done)
}

func TestActRefusesWithoutTheUIDDecidedOn(t *testing.T) { // I2
	var requests atomic.Int32
	c := served(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		k8stest.Status(w, 500, "InternalError", "")
	})
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

// The look on which an Off is decided compares the clocks, too. // I16
func TestLookSeesAClockThatWasSet(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-10*time.Minute).UTC().Format(http.TimeFormat))
		k8stest.Status(w, http.StatusNotFound, "NotFound", "n")
	})
	assert.False(t, c.View().SkewKnown)
	c.Look(t.Context(), aRun, nil)
	v := c.View()
	assert.True(t, v.SkewKnown)
	assert.InDelta(t, -10*time.Minute, v.Skew, float64(2*time.Second))
}

// An API server that cannot be reached is an error that names it, and the kubeconfig.
func TestSurveyWithoutAServer(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	kubeconfig := k8stest.Kubeconfig(t, gone.URL)
	_, err := TakeSurvey(t.Context(), connected(t, kubeconfig), "fenced")
	require.ErrorContains(t, err, "ask the workload API server "+gone.URL)
	assert.ErrorContains(t, err, kubeconfig)
}

// A password in the URL of the server is in no error of the look at it either. // I25
func TestServerWithAPassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kc")
	for _, server := range []string{"https://root:Canary-4711@127.0.0.1:1", "https://root:Canary-4711@127.0.0.1:port"} {
		require.NoError(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '"+server+
			"'}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\nusers: []\n"), 0o600))
		c, err := New(Config{Config: view.Config{Name: "prod", Kubeconfig: path, StoreID: "x", FreshEvery: time.Second}}, zap.NewNop())
		if err == nil {
			_, err = TakeSurvey(t.Context(), c, "fenced")
		}
		require.ErrorContains(t, err, "127.0.0.1:")
		require.NotContains(t, err.Error(), "Canary")
	}
}

// A kubelet that writes times beyond the calendar into its Node and its Lease keeps no run from being saved.
func TestTimesOfAKubeletAreJSON(t *testing.T) {
	t.Parallel()
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/leases/n") {
			k8stest.Status(w, http.StatusNotFound, "NotFound", path.Base(r.URL.Path))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"n","namespace":"kube-node-lease","resourceVersion":"1","uid":"u"},
			"spec":{"holderIdentity":"n","leaseDurationSeconds":40,"renewTime":"9999-12-31T23:59:59.000000-12:00"}}`)
	})
	l := c.Look(t.Context(), remediate.Run{Target: remediate.Target{Node: "n"}}, nil)
	require.True(t, l.Seen.Lease.Known)
	require.Equal(t, "1", l.Seen.Lease.ResourceVersion)
	l.Seen.Lease.RenewTime = l.Seen.Lease.RenewTime.UTC()
	must.Do(json.Marshal(l.Seen.Lease))(t)
	for _, year := range []int{-5000, 0, 1, 2026, 9999, 10000, 290000} { // protobuf holds more than JSON
		at := metav1.NewTime(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC))
		n := view.PolicyNode(&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "Unknown", LastTransitionTime: at}}}})
		_, err := json.Marshal(n.Conditions[0].Condition().LastTransition)
		assert.NoError(t, err, year)
	}
}
