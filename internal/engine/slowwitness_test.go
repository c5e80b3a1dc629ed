package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
)

// sluggish is a BMC that needs some time for an answer, less than a read may take.
type sluggish struct{ power }

func (s sluggish) Read(ctx context.Context) (bmc.Reading, error) {
	select {
	case <-ctx.Done():
		return bmc.Reading{}, silent()
	case <-time.After(2500 * time.Millisecond):
	}
	return s.power.Read(ctx)
}

// misplaced is an outlet that was enrolled for n-1 and feeds something else.
type misplaced struct{ *outlet }

func (m misplaced) Send(_ context.Context, c bmc.Command) (bmc.Receipt, error) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.sent, m.cut = append(m.sent, c), c == bmc.CommandOff
	return bmc.Receipt{}, nil
}

// A BMC that reads On in 2.5 s, where a read may take 5, is a witness like any
// other: the host runs, and no outlet's Off proves anything. // I1
func TestSlowBMCIsAWitness(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.ignoreOff = true // the host stays On, and its BMC says so
		e, stop := enrolled(t, w, store, func(o *engine.Options) {
			levels(o)
			o.Open = func(d bmc.Device) (bmc.Power, error) {
				if d.Driver == bmc.DriverFenceAgent {
					return misplaced{p}, nil
				}
				return sluggish{power{w}}, nil
			}
		})
		time.Sleep(5 * time.Minute)
		assert.Equal(t, 1, only(t, e).OffLevel)
		stop()
		assert.NotEmpty(t, p.sent)
		assert.Zero(t, w.deleted(), "the Node of a running host was deleted")
	})
}
