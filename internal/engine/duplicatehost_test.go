package engine_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// meanwhile is a cluster in which something happens during the first look of a run.
type meanwhile struct {
	metal
	happens func()
	looks   atomic.Int32
	held    atomic.Int32
}

func (m *meanwhile) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	if r.ID != "" && m.looks.Add(1) == 1 {
		m.happens()
		time.Sleep(3 * time.Second) // until the watch has told of it
	}
	return m.metal.Look(ctx, r, backups)
}

func (m *meanwhile) Act(ctx context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	if a == remediate.SetPowerLock {
		m.held.Add(1)
		return nil
	}
	return m.metal.Act(ctx, r, a, backups, b)
}

// Whoever carries out the power lock uses the current address of the BareMetalHost. So no
// lock is set if the address has changed since the run started. // I9, I10
func TestPowerLockIsNotSetIfTheAddressChanged(t *testing.T) {
	to := func(m metal, name, address string) {
		m.set(name, func(h *policy.Host) { h.Address = address })
	}
	for name, happens := range map[string]func(metal){
		"nothing":                     func(metal) {},
		"it leads to nobody's BMC":    func(m metal) { to(m, "h-1", "ipmi://192.0.2.66") },
		"another host leads to its":   func(m metal) { to(m, "h-2", "ipmi://192.0.2.10") },
		"another Node tells its UUID": func(m metal) { m.duplicateUUID() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				m := &meanwhile{metal: newMetal(w)}
				m.happens = func() { happens(m.metal) }
				e, _, stop := start(t, w, store, func(o *engine.Options) { o.Clusters[0].Kube = m })
				time.Sleep(90 * time.Second)
				require.Len(t, e.Runs("c"), 1)
				assert.Equal(t, name == "nothing", m.held.Load() > 0, "held %d times", m.held.Load())
				assert.Zero(t, w.Count(bmc.CommandOff))
				stop()
			})
		})
	}
}

// A power lock that was recorded and not set waits, after a restart, until the BMC has
// shown its identity: the lock is a power command, too. // I8
func TestPowerLockWaitsForTheIdentityAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := &meanwhile{metal: newMetal(w), happens: func() {}}
		options := func(o *engine.Options) { o.Clusters[0].Kube = m }
		_, _, stop := start(t, w, store, options)
		for m.held.Load() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		m.set("h-1", func(h *policy.Host) { h.Address = "ipmi://192.0.2.66" })
		before := m.held.Load()
		_, _, stop = start(t, w, store, options)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, before, m.held.Load(), "the hold would switch off whatever is at the new address")
		stop()
	})
}

// A host that has become a duplicate gets no Off, whether its run has recorded one or
// not. // I9
func TestDuplicateHostGetsNoOff(t *testing.T) {
	for name, saved := range map[string]string{
		"the run has just begun": `"step":"PowerOff"`, "the first Off was recorded, and not taken": `"intent":{"action":"SendOff"`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, inner *failingStore) {
				var away atomic.Bool
				var once sync.Once
				begun, store := make(chan struct{}), &stubborn{Store: inner}
				store.watch(func(run []byte) {
					if bytes.Contains(run, []byte(saved)) {
						once.Do(func() { away.Store(true); close(begun) })
					}
				})
				e, _, stop := start(t, w, store, func(o *engine.Options) {
					o.Open = func(bmc.Device) (bmc.Power, error) { return reboots{w.bmc(), &away}, nil }
				})
				<-begun
				w.duplicateUUID()
				time.Sleep(10 * time.Second)
				away.Store(false)
				time.Sleep(10 * time.Minute)
				assert.Zero(t, w.Count(bmc.CommandOff))
				assert.Zero(t, w.Isolations())
				r := only(t, e)
				assert.Equal(t, remediate.Aborted, r.Step)
				assert.Equal(t, "PowerForbidden", string(r.Reason))
				assert.Contains(t, r.Note, "the same system UUID")
				stop()
			})
		})
	}
}

// cutLook is a cluster that does not answer the next look before it is given up.
type cutLook struct {
	engine.Kube
	cut *atomic.Bool
}

func (c cutLook) Look(ctx context.Context, r remediate.Run, backups [][]byte) run.Fresh {
	if c.cut.CompareAndSwap(true, false) {
		<-ctx.Done()
		return run.Fresh{Err: ctx.Err()}
	}
	return c.Kube.Look(ctx, r, backups)
}

// A probe that ends with the leadership does not prevent the next one. // L4
func TestCancelledProbeIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var cut atomic.Bool
		cut.Store(true)
		p := newPair(t, w, store, func(_ string, o *engine.Options) { o.Clusters[0].Kube = cutLook{o.Clusters[0].Kube, &cut} })
		p.give("a")
		for cut.Load() {
			time.Sleep(100 * time.Millisecond)
		}
		require.Empty(t, p.engine["a"].Runs("c"))
		p.take("a")
		p.give("a")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		p.end()
	})
}
