package engine_test

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/remediate"
)

// A daemon that takes over a cluster may find an open run on its own host. It does nothing
// destructive there, at any step of the run, and lets the run end. // I13
func TestRunOnTheOwnHostIsTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		saved string
		offs  int // that the daemon before it gave
	}{
		"just begun":           {`"step":"PowerOff"`, 0},
		"the Off was recorded": {`"intent":{"action":"SendOff"`, 0},
		"the BMC says Off":     {`"step":"DeleteNode"`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, inner *failingStore) {
				var away atomic.Bool
				var once sync.Once
				begun, store := make(chan struct{}), &stubborn{Store: inner.Store}
				store.watch(func(run []byte) {
					if bytes.Contains(run, []byte(c.saved)) {
						once.Do(func() { away.Store(true); close(begun) })
					}
				})
				p := newPair(t, w, &failingStore{Store: store}, func(name string, o *engine.Options) {
					o.Open = func(bmc.Device) (bmc.Power, error) { return reboots{w.bmc(), &away}, nil }
					if name == "b" {
						o.Own = hosts.Own{MachineID: "machine-n-1"}
					}
				})
				p.give("a")
				<-begun
				time.Sleep(200 * time.Millisecond)
				p.take("a")
				p.setAside("a", true) // b stays the owner
				p.give("b")
				away.Store(false)
				time.Sleep(30 * time.Minute)
				assert.Equal(t, c.offs, w.Count(bmc.CommandOff))
				assert.Zero(t, w.Isolations())
				assert.True(t, w.On())
				r := only(t, p.engine["b"])
				assert.Equal(t, remediate.Aborted, r.Step)
				assert.Equal(t, "OwnHost", string(r.Reason))
				assert.Contains(t, r.Note, "the host that this daemon runs on")
				p.end()
			})
		})
	}
}

// An entry that has become protected applies to a run that has not acted yet. // I13
func TestProtectedSinceTheRunBegan(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		var away atomic.Bool
		var once sync.Once
		begun, store := make(chan struct{}), &stubborn{Store: inner}
		store.watch(func([]byte) { once.Do(func() { away.Store(true); close(begun) }) })
		opened := func(o *engine.Options) {
			o.Open = func(bmc.Device) (bmc.Power, error) { return reboots{w.bmc(), &away}, nil }
		}
		_, _, stop := start(t, w, store, opened)
		<-begun
		time.Sleep(time.Second)
		stop()
		w.ChangeEntry(func(h *bmc.Host) { h.Protected = true })
		away.Store(false)
		e, _, stop := start(t, w, store, opened)
		time.Sleep(30 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		r := only(t, e)
		assert.Equal(t, "Protected", string(r.Reason))
		assert.Contains(t, r.Note, "protected")
		stop()
	})
}
