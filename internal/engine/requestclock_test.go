package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/test/fake"
)

// A clock that is ahead ends no request, whose end would be for ever: the time in which its run must have begun is
// over by a clock that agrees with the API server's. // I16, I22
func TestClockThatIsAheadEndsNoRequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		made := func(at time.Time) func(q *policy.Request) {
			return func(q *policy.Request) { q.Created, q.Power.Timeout = at, 10*time.Minute }
		}
		ask(w, made(time.Now().Add(-2*time.Hour))) // a moment ago, by the API server
		w.setSkew(-2 * time.Hour)
		e, _, stop := start(t, w, store, responding(w))
		time.Sleep(time.Minute)
		_, told := asked(w)
		assert.Equal(t, request.Pending, told.Phase)
		assert.Equal(t, string(reason.ClockSkew), told.Conditions[0].Reason)
		assert.Empty(t, e.Runs("c"))

		w.Do(func(s *fake.State) { s.ChangeRequest("m-1", made(time.Now())) })
		time.Sleep(10 * time.Second)
		w.setSkew(0)
		until(t, e, remediate.Done)
		time.Sleep(10 * time.Second)
		_, told = asked(w)
		assert.Equal(t, request.Succeeded, told.Phase)
		stop()
	})
}
