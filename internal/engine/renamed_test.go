package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// show shows a Node of another name with the UUID of n-1's host.
func (w *world) show(name, boot, ready string, since time.Time) {
	w.Do(func(s *fake.State) {
		s.PutNode(fake.Node{Name: name, UID: "uid-" + name, BootID: boot, SystemUUID: hostUUID, Ready: ready, Since: since})
	})
}

// isolated starts an engine and waits until n-1 was isolated, which never registers again.
func isolated(t *testing.T, w *world, store *failingStore) (*engine.Engine, func()) {
	t.Helper()
	w.SetBootTime(never)
	e, _, stop := start(t, w, store, nil)
	time.Sleep(2 * time.Minute)
	require.Equal(t, remediate.AwaitNode, only(t, e).Step)
	require.Equal(t, 1, w.Isolations())
	return e, stop
}

// A host that has registered under another name is not power-cycled again, even if the
// daemon restarts meanwhile.
func TestHostThatRegistersUnderAnotherName(t *testing.T) { // I6
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, stop := isolated(t, w, store)
		w.show("n-new", "boot-2", "True", time.Now())
		stop()
		w.setUnsynced(true) // the next daemon has not seen the cluster yet
		e, _, stop := start(t, w, store, nil)
		time.Sleep(30 * time.Minute)
		require.Equal(t, remediate.AwaitNode, only(t, e).Step, "nobody can say whether the host works elsewhere")
		w.setUnsynced(false)
		time.Sleep(30 * time.Minute)
		run := only(t, e)
		assert.Equal(t, remediate.Held, run.Step)
		assert.Equal(t, "NodeRenamed", string(run.Reason))
		assert.Contains(t, run.Note, "n-new")
		assert.Equal(t, 1, w.Count(bmc.CommandOff), "it works: it is not switched off again")
		stop()
	})
}

// A Node left over from an earlier renaming does not show where the host is now: the host
// is power-cycled.
func TestOldNodeOfARenamedHostIsNoReturn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, stop := isolated(t, w, store)
		w.show("n-old", "boot-0", "Unknown", time.Now().Add(-time.Hour))
		time.Sleep(15 * time.Minute)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
		assert.Equal(t, 2, only(t, e).Attempt)
		w.show("n-old", "boot-3", "Unknown", time.Now()) // it has been heard of, and is silent again
		time.Sleep(15 * time.Minute)
		assert.Equal(t, "NodeRenamed", string(only(t, e).Reason))
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
		stop()
	})
}

// A boot from before the run is no return, even if the control plane set the Node to
// Unknown only during the run.
func TestBootFromBeforeTheRunIsNoReturn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, stop := isolated(t, w, store)
		w.show("n-old", only(t, e).Target.BootID, "Unknown", time.Now())
		time.Sleep(15 * time.Minute)
		assert.Equal(t, 2, w.Count(bmc.CommandOff))
		stop()
	})
}
