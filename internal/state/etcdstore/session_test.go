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

// A guard ends at the very moment that its claim names, with the process of etcd far
// away: four fifths of the TTL after the last renewal that was answered was sent. // I19
func TestGuardEndsWithItsTime(t *testing.T) {
	const ttl, settle = 15 * time.Second, 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		time.Sleep(time.Second) // etcd took this long to answer
		s := newSession(t.Context(), moment{at: begun}, ttl, never)
		held := newTerm(&member{store: &store{}, owners: map[string]state.Owner{}}, s, 1, func(ctx context.Context, c state.Claim) {
			assert.Equal(t, begun.Add(time.Second+settle), time.Now(), "it begins when the last owner's command has ended")
			assert.Equal(t, begun.Add(ttl*4/5), c.Until())
			time.Sleep(time.Second)
			s.renewed(moment{at: begun.Add(5 * time.Second)})
			assert.Equal(t, begun.Add(5*time.Second+ttl*4/5), c.Until(), "from when it was sent, not from when it was answered")
			s.renewed(moment{at: begun.Add(4 * time.Second)}) // its answer was overtaken
			<-ctx.Done()
			assert.Equal(t, c.Until(), time.Now())
			assert.Equal(t, begun.Add(5*time.Second+ttl*4/5), c.Until())
			s.renewed(moment{at: time.Now()})
			assert.Equal(t, c.Until(), time.Now(), "too late")
		})
		held.start(t.Context(), "prod", 1, settle)
		held.guards.Wait()
		assert.True(t, held.held["prod"].returned())
		assert.Error(t, s.ctx.Err())
	})
}

// A session whose answer came after its time begins lost.
func TestSessionThatWasGrantedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		time.Sleep(time.Minute)
		s := newSession(t.Context(), moment{at: begun}, 15*time.Second, never)
		synctest.Wait()
		assert.Error(t, s.ctx.Err())
		s.renewed(moment{at: time.Now()})
		assert.True(t, s.Until().Before(time.Now()))
	})
}

// While a host is suspended its monotonic clock stands still, and the lease runs on. // I19
func TestSuspendTakesTimeOffASession(t *testing.T) {
	const ttl = 15 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var slept time.Duration
		begun := time.Now()
		s := newSession(t.Context(), moment{at: begun}, ttl, func() time.Duration { return slept })
		slept = 10 * time.Second
		assert.Equal(t, begun.Add(2*time.Second), s.Until())
		s.renewed(moment{at: begun.Add(time.Second)})
		assert.Equal(t, begun.Add(3*time.Second), s.Until(), "it was sent before the suspend, and answered after it")
		s.renewed(moment{at: begun.Add(2 * time.Second), suspended: slept})
		assert.Equal(t, begun.Add(14*time.Second), s.Until())
		slept += time.Hour
		assert.True(t, s.Until().Before(time.Now()))
		s.check()
		assert.Error(t, s.ctx.Err())
	})
}
