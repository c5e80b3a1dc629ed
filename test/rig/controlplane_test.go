package rig_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/rig/rigtest"
)

func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }

func TestServerSaysItsTrueVersion(t *testing.T) {
	c := rigtest.Shared(t)
	v, err := c.Client().Discovery().ServerVersion()
	require.NoError(t, err)
	assert.Equal(t, "v1.36.3", v.GitVersion)
}

func TestFencedHasItsRoleAndNoMore(t *testing.T) {
	c, ctx := rigtest.Shared(t), rigtest.Context(t, 3*time.Minute)
	secret := rigtest.Name("role")
	require.NoError(t, c.CreateSecret(ctx, secret, map[string]string{"username": "u"}))
	path, err := c.Kubeconfig(rig.FencedUser)
	require.NoError(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	fenced, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)

	_, err = fenced.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	assert.NoError(t, err, "Nodes are what it watches")
	_, err = fenced.CoreV1().Secrets(rig.Namespace).Get(ctx, secret, metav1.GetOptions{})
	assert.NoError(t, err, "a Secret is read by its name")
	_, err = fenced.CoreV1().Secrets(rig.Namespace).List(ctx, metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), "Secrets are never listed: %v", err)
	_, err = fenced.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, secret, metav1.GetOptions{})
	assert.True(t, apierrors.IsForbidden(err), "nor read where no BareMetalHosts are: %v", err)
	err = fenced.CoreV1().Pods(rig.Namespace).Delete(ctx, "any", metav1.DeleteOptions{})
	assert.True(t, apierrors.IsForbidden(err), "pods are not its own: %v", err)
}

func TestAPIServerGoesAndReturns(t *testing.T) {
	c := rigtest.Own(t, rig.Options{Bare: true})
	ctx := rigtest.Context(t, 3*time.Minute)
	require.NoError(t, c.CreateNamespace(ctx, "kept"))
	_, err := c.CreateNode(ctx, rig.Node{Name: "once"})
	require.NoError(t, err)
	require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, "once", metav1.DeleteOptions{}))
	url := c.URL()

	c.StopAPIServer()
	_, err = c.Client().CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{})
	require.ErrorContains(t, err, "connection refused")
	assert.Error(t, c.FreezeAPIServer(), "nothing to freeze")
	assert.NoError(t, c.Died(), "a program that the test stopped did not die")

	require.NoError(t, c.StartAPIServer(ctx))
	assert.Equal(t, url, c.URL())
	_, err = c.Client().CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{})
	require.NoError(t, err, "the data outlives the API server")
	deletions, err := c.NodeDeletions("once")
	require.NoError(t, err)
	require.Len(t, deletions, 1, "and so does the audit log")
	assert.Empty(t, deletions[0].UID, "that request had no preconditions")

	require.NoError(t, c.FreezeAPIServer())
	short := rigtest.Context(t, 500*time.Millisecond)
	_, err = c.Client().CoreV1().Namespaces().Get(short, "kept", metav1.GetOptions{})
	require.ErrorContains(t, err, "deadline exceeded", "a frozen server hangs, it does not refuse")
	require.NoError(t, c.ThawAPIServer())
	_, err = c.Client().CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestOneThatDoesNotStartStopsTheOthers(t *testing.T) {
	before := children(t)
	_, err := rig.StartAll(t.Context(), rig.Options{Bare: true}, rig.Options{CRDs: []rig.CRDs{"nothing"}})
	require.ErrorContains(t, err, `no set of CRDs "nothing"`)
	require.Equal(t, before, children(t), "programs are left")
}

// children are the processes that this one has started, and that run.
func children(t *testing.T) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[0] != "Z" && f[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, filepath.Dir(file))
		}
	}
	return pids
}
