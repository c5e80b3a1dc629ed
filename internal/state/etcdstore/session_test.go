package etcdstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/state"
)

func never() time.Duration { return 0 }

// The context of a callback ends exactly at Until, without a message from etcd: four fifths of
// the TTL after the last successful renewal was sent. // I19
func TestGuardEndsWithItsTime(t *testing.T) {
	const ttl, delay = 15 * time.Second, 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		time.Sleep(time.Second) // etcd took this long to answer
		s := newSession(t.Context(), moment{at: begun}, ttl, never)
		i, ran := &instance{store: &store{}, owners: map[string]state.Owner{}}, false
		i.Add("prod")
		clusters := newOwnership(i, s, 1, func(ctx context.Context, c state.Claim) {
			ran = true
			assert.Equal(t, begun.Add(time.Second+delay), time.Now(), "it begins when the last owner's command has ended")
			assert.Equal(t, begun.Add(ttl*4/5), c.Until())
			time.Sleep(time.Second)
			s.recordRenewal(moment{at: begun.Add(5 * time.Second)})
			assert.Equal(t, begun.Add(5*time.Second+ttl*4/5), c.Until(), "from when it was sent, not from when it was answered")
			s.recordRenewal(moment{at: begun.Add(4 * time.Second)}) // its answer came after the answer to a later renewal
			<-ctx.Done()
			assert.Equal(t, c.Until(), time.Now())
			assert.Equal(t, begun.Add(5*time.Second+ttl*4/5), c.Until())
			s.recordRenewal(moment{at: time.Now()})
			assert.Equal(t, c.Until(), time.Now(), "too late")
		})
		clusters.startCallback(t.Context(), "prod", 1, delay)
		clusters.callbacks.Wait()
		assert.True(t, ran)
		assert.True(t, clusters.owned["prod"].hasReturned())
		assert.Error(t, s.ctx.Err())
	})
}

// A session is lost from the start if its lease was granted too late.
func TestSessionThatWasGrantedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		time.Sleep(time.Minute)
		s := newSession(t.Context(), moment{at: begun}, 15*time.Second, never)
		synctest.Wait()
		assert.Error(t, s.ctx.Err())
		s.recordRenewal(moment{at: time.Now()})
		assert.True(t, s.Until().Before(time.Now()))
	})
}

// While a host is suspended, its monotonic clock stands still, but the lease does not. // I19
func TestSuspendTakesTimeOffASession(t *testing.T) {
	const ttl = 15 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var slept time.Duration
		begun := time.Now()
		s := newSession(t.Context(), moment{at: begun}, ttl, func() time.Duration { return slept })
		slept = 10 * time.Second
		assert.Equal(t, begun.Add(2*time.Second), s.Until())
		s.recordRenewal(moment{at: begun.Add(time.Second)})
		assert.Equal(t, begun.Add(3*time.Second), s.Until(), "it was sent before the suspend, and answered after it")
		s.recordRenewal(moment{at: begun.Add(2 * time.Second), suspended: slept})
		assert.Equal(t, begun.Add(14*time.Second), s.Until())
		slept += time.Hour
		assert.True(t, s.Until().Before(time.Now()))
		s.endIfExpired()
		assert.Error(t, s.ctx.Err())
	})
}
