// Package rigtest provides control planes that the tests of one binary share, one for each selection of
// CRDs. Each test names its own objects with Name.
package rigtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

var (
	mu     sync.Mutex
	shared = map[string]*rig.ControlPlane{} // by key of its CRDs
	pool   rig.Pool
)

// gcPercent is for a process of few live objects that decodes much: its collections would take a tenth of its time.
const gcPercent = 400

// Main is for TestMain: it runs the tests and stops the control planes that they
// used.
//
//	func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }
func Main(m *testing.M) int {
	debug.SetGCPercent(gcPercent)
	defer func() {
		for _, c := range shared {
			c.Stop()
		}
		pool.Stop()
	}()
	return m.Run()
}

// Shared returns this test binary's control plane with these sets of CRDs, or with those of OpenShift on
// bare metal if none is named. It starts the control plane for the first test that needs it. The binary
// must use Main. With -short the test is skipped.
func Shared(t *testing.T, sets ...rig.CRDs) *rig.ControlPlane {
	t.Helper()
	return several(t, rig.Options{CRDs: sets})[0]
}

// Apart returns two shared control planes: a management API with these sets of
// CRDs, and a workload API with none. Tests of both versions of Cluster API share
// the workload API.
func Apart(t *testing.T, sets ...rig.CRDs) (management, workload *rig.ControlPlane) {
	t.Helper()
	both := several(t, rig.Options{CRDs: sets}, rig.Options{CRDs: []rig.CRDs{}})
	return both[0], both[1]
}

// several returns the shared control planes with these options. It starts those that do not run yet at
// the same time.
func several(t *testing.T, options ...rig.Options) []*rig.ControlPlane {
	t.Helper()
	skipShort(t)
	mu.Lock()
	defer mu.Unlock()
	missing := map[string]rig.Options{}
	for _, o := range options {
		if shared[key(o)] == nil {
			missing[key(o)] = o
		}
	}
	keys := slices.Sorted(maps.Keys(missing))
	var wanted []rig.Options
	for _, k := range keys {
		wanted = append(wanted, missing[k])
	}
	for i, c := range start(t, wanted...) {
		shared[keys[i]] = c
	}
	var found []*rig.ControlPlane
	for _, o := range options {
		c := shared[key(o)]
		keepLogs(t, c)
		require.NoError(t, c.Died(), "the shared control plane")
		found = append(found, c)
	}
	return found
}

// keepLogs keeps the logs of a control plane if the test fails, and logs their directory.
func keepLogs(t *testing.T, c *rig.ControlPlane) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs of the control plane are kept in %s", c.KeepLogs())
		}
	})
}

// key distinguishes the default sets, which are nil, from none.
func key(o rig.Options) string { return fmt.Sprintf("%#v", o.CRDs) }

func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
}

// Own returns a control plane for one test that stops the API server, or needs an empty one. When the test ends nothing of it may
// know its address.
func Own(t *testing.T, o rig.Options) *rig.ControlPlane {
	t.Helper()
	skipShort(t)
	c := start(t, o)[0]
	t.Cleanup(c.Stop)
	keepLogs(t, c)
	return c
}

func start(t *testing.T, options ...rig.Options) []*rig.ControlPlane {
	t.Helper()
	for i := range options {
		if options[i].Progress == nil {
			options[i].Progress = os.Stderr // t.Log shows only at the end, and a first build takes minutes
		}
	}
	// Building takes minutes on a slow machine; the test's own deadline is the limit.
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-10*time.Second))
		defer cancel()
	}
	return must.Do(pool.StartAll(ctx, options...))(t)
}

var names atomic.Int64

// Name returns base with a number that no other call gets. So tests that share a control plane use
// different objects, even if -count runs one of them twice.
func Name(base string) string { return fmt.Sprintf("%s-%d", base, names.Add(1)) }

// RunKubelet runs a simulated kubelet, with a kubelet's credentials, until the test ends.
func RunKubelet(t *testing.T, c *rig.ControlPlane, o rig.KubeletOptions) *rig.Kubelet {
	t.Helper()
	client := must.Do(c.KubeletClient(o.NodeName))(t)
	k := rig.NewKubelet(client, o)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = k.Run(ctx) }) // its only error is a missing Power, which shows as no Node
	t.Cleanup(func() { cancel(); wg.Wait() })
	return k
}

// Context ends after d, or with the test.
func Context(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
