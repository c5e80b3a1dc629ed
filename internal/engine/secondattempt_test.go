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
	"github.com/fenced/fenced/internal/remediate"
)

// reboots is a BMC that restarts: it neither answers nor takes commands meanwhile.
type reboots struct {
	bmc.Power
	away *atomic.Bool
}

func (b reboots) Read(ctx context.Context) (bmc.Reading, error) {
	if b.away.Load() {
		return bmc.Reading{}, noAnswer()
	}
	return b.Power.Read(ctx)
}

func (b reboots) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if b.away.Load() {
		return bmc.Receipt{}, noAnswer()
	}
	return b.Power.Send(ctx, c)
}

// The BMC does not accept the Off of the second attempt. Meanwhile the slow kubelet
// registers and the Node is Ready. The Off is not sent again, and the run ends Done. // I4
func TestSecondAttemptSparesANodeThatBecameReady(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, inner *failingStore) {
		store := &stubborn{Store: inner}
		var away atomic.Bool
		var once sync.Once
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			o.Run.ReadyTimeout = 40 * time.Second
			o.Open = func(bmc.Device) (bmc.Power, error) { return reboots{w.bmc(), &away}, nil }
		})
		began := make(chan struct{})
		store.watch(func(run []byte) {
			if bytes.Contains(run, []byte(`"attempt":2`)) && bytes.Contains(run, []byte(`"intent":{"action":"SendOff"`)) {
				once.Do(func() { away.Store(true); close(began) })
			}
		})
		w.SetBootTime(never) // the kubelet is slow: it has not registered before that
		<-began
		w.SetBootTime(19 * time.Second)
		time.Sleep(25 * time.Second)
		require.True(t, w.Ready())
		away.Store(false)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, 1, w.Count(bmc.CommandOff), "Off to a Node that is Ready")
		assert.Equal(t, remediate.Done, r.Step, "%s %s", r.Reason, r.Note)
		stop()
	})
}
