package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/fake"
)

// sluggish is a BMC that needs some time for an answer, less than a read may take.
type sluggish struct{ bmc.Power }

func (s sluggish) Read(ctx context.Context) (bmc.Reading, error) {
	select {
	case <-ctx.Done():
		return bmc.Reading{}, noAnswer()
	case <-time.After(2500 * time.Millisecond):
	}
	return s.Power.Read(ctx)
}

// A BMC that reads On in 2.5 s, where a read may take 5 s, is a witness like any other:
// the host runs, and the Off of an outlet proves nothing. // I1
func TestSlowBMCIsAWitness(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, _ := withOutlet(w)
		p.Change(func(o *fake.Outlet) { o.FeedsAnother = true })
		w.SetFault(fake.IgnoresOff) // the host stays On, and its BMC says so
		e, stop := enrolled(t, w, store, opening(sluggish{w.bmc()}, p))
		time.Sleep(5 * time.Minute)
		assert.Equal(t, 1, only(t, e).OffLevel)
		stop()
		assert.NotEmpty(t, p.Commands())
		assert.Zero(t, w.Isolations(), "the Node of a running host was deleted")
	})
}
