// Package rigtest gives a test binary one shared control plane. Tests share it,
// so each names its own objects, with Name.
package rigtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/rig"
)

var (
	mu     sync.Mutex
	shared *rig.ControlPlane
)

// Main is for TestMain: it runs the tests and stops the control plane that they
// used, if any did.
//
//	func TestMain(m *testing.M) { os.Exit(rigtest.Main(m)) }
func Main(m *testing.M) int {
	defer func() {
		if shared != nil {
			shared.Stop()
		}
	}()
	return m.Run()
}

// Shared returns the control plane of this test binary, started for the first
// test that asks. A binary that asks needs Main. With -short the test is skipped.
func Shared(t *testing.T) *rig.ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	mu.Lock()
	defer mu.Unlock()
	if shared == nil {
		shared = start(t, rig.Options{})
	}
	require.NoError(t, shared.Died(), "the shared control plane")
	return shared
}

// Own starts a control plane for one test: one that stops the API server, or
// that must be empty.
func Own(t *testing.T, o rig.Options) *rig.ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	c := start(t, o)
	t.Cleanup(c.Stop)
	return c
}

func start(t *testing.T, o rig.Options) *rig.ControlPlane {
	t.Helper()
	if o.Progress == nil {
		o.Progress = os.Stderr // t.Log shows only at the end, and a first build takes minutes
	}
	// Building takes minutes on a slow machine; the test's own deadline is the limit.
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-10*time.Second))
		defer cancel()
	}
	c, err := rig.Start(ctx, o)
	require.NoError(t, err)
	return c
}

var names atomic.Int64

// Name is base with a number that no other call got, so that tests which share a
// control plane stay apart, also when -count runs one of them twice.
func Name(base string) string { return fmt.Sprintf("%s-%d", base, names.Add(1)) }

// RunKubelet runs a simulated kubelet, signed in as one, until the test ends.
func RunKubelet(t *testing.T, c *rig.ControlPlane, o rig.KubeletOptions) *rig.Kubelet {
	t.Helper()
	client, err := c.KubeletClient(o.NodeName)
	require.NoError(t, err)
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
