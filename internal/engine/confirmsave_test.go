package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
)

// One reading of On contradicts a manual confirmation permanently, even if the store could
// not save it at once and the BMC no longer answers. // I26
func TestEvidenceAgainstAConfirmationOutlivesAFailedSave(t *testing.T) {
	for _, outage := range []time.Duration{0, time.Second, 20 * time.Second} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.pauseCheck()
			w.dead()
			e, _, stop := start(t, w, store, nil)
			time.Sleep(time.Second)
			_, err := e.ConfirmOff(t.Context(), byHand)
			require.NoError(t, err)
			time.Sleep(5*time.Second + 500*time.Millisecond)
			require.Equal(t, remediate.PowerOff, only(t, e).Step)
			store.set(outage > 0)
			w.SetBootTime(never) // nothing else speaks against the confirmation
			w.SetPower(true)
			w.FailReads(nil)
			time.Sleep(time.Second) // one look
			w.FailReads(noAnswer())
			time.Sleep(outage)
			store.set(false)
			time.Sleep(10 * time.Minute)
			r := only(t, e)
			assert.Equal(t, remediate.Held, r.Step, "outage of %s: %s", outage, r.Note)
			assert.Equal(t, "ConfirmedOffContradicted", string(r.Reason))
			assert.Zero(t, w.Isolations())
			stop()
		})
	}
}
