package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/etcdstore"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

// Without a quorum nothing is saved, the claim of the owner ends by its own clock, and no other
// instance claims the cluster. With a quorum again, work continues from what was saved.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	c := ownEtcd(t, rig.EtcdOptions{})
	var ended atomic.Pointer[time.Time]
	short := times{ttl: 15 * time.Second, delay: lasting.delay} // of a claim whose end is waited for
	open := func() state.Store { return etcdstore.ShortCalls(openEtcd(t, c, "/q/")) }
	a := startOn(t, open(), "a", []string{"prod"}, short, func(ctx context.Context, _ state.Claim) {
		<-ctx.Done()
		now := time.Now()
		ended.CompareAndSwap(nil, &now)
	})
	claim := a.awaitClaim(t, "prod")
	b := startOn(t, open(), "b", []string{"prod"}, short, keepClaim)
	record := state.Record{Kind: state.KindRun, Key: "r", Data: []byte("before")}
	var err error
	record.Version, err = openEtcd(t, c, "/q/").Put(t.Context(), record)
	require.NoError(t, err)

	leader := awaitLeader(t, c)
	require.NoError(t, c.Freeze(leader))
	require.NoError(t, c.Freeze((leader+1)%3))
	record.Data = []byte("during")
	brief, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = claim.Store.Put(brief, record)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, state.ErrConflict)
	a.awaitLoss(t, "prod")
	require.NotNil(t, ended.Load())
	_, taken := b.claim("prod")
	require.False(t, taken, "without a quorum nobody owns anything")
	for _, i := range []*instance{a, b} {
		require.Eventually(t, func() bool {
			o := i.owners.Owner("prod")
			return o.Epoch == 0 && o.Instance == "" && o.Problem != ""
		}, eventually, 20*time.Millisecond, "%s still names an owner", i.name)
	}

	require.NoError(t, c.Thaw(leader))
	require.NoError(t, c.Thaw((leader+1)%3))
	// etcd may or may not have carried out the write without an answer. The next owner
	// continues from the stored record.
	require.Eventually(t, func() bool {
		got, err := a.store.Get(t.Context(), state.KindRun, "r")
		if err != nil {
			return false
		}
		assert.Contains(t, []string{"before", "during", "after"}, string(got.Data)) // "after" after a Put without an answer
		_, err = a.store.Put(t.Context(), state.Record{Kind: state.KindRun, Key: "r", Version: got.Version, Data: []byte("after")})
		return err == nil
	}, eventually, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		next, ok := a.claim("prod")
		if !ok {
			next, ok = b.claim("prod")
		}
		return ok && next.Epoch > claim.Epoch
	}, eventually, 20*time.Millisecond)
	got, err := b.store.Get(t.Context(), state.KindRun, "r")
	require.NoError(t, err)
	require.Equal(t, "after", string(got.Data))
}

// If members die and restart during writes, the writes continue. Every acknowledged write is
// stored, and each write is carried out once.
func TestMembersDieDuringWrites(t *testing.T) {
	t.Parallel()
	c := ownEtcd(t, rig.EtcdOptions{})
	s := openEtcd(t, c, "/w/")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var acknowledged atomic.Int64
	var versions []uint64
	done := make(chan error, 1)
	go func() {
		var version uint64
		for i := 0; ctx.Err() == nil; i++ {
			next, err := putUntilAnswered(t.Context(), s, state.Record{Kind: state.KindRun, Key: "counter", Version: version, Data: fmt.Append(nil, i)})
			if err != nil {
				done <- fmt.Errorf("write %d: %w", i, err)
				return
			}
			version = next
			versions = append(versions, version)
			acknowledged.Add(1)
		}
		done <- nil
	}()
	writesGoOn := func(why string) {
		since := acknowledged.Load()
		require.Eventually(t, func() bool { return acknowledged.Load() >= since+10 }, eventually, 50*time.Millisecond, why)
	}
	for range 2 {
		leader := awaitLeader(t, c)
		c.Kill(leader)
		writesGoOn("with one member dead")
		require.NoError(t, c.Restart(leader))
		writesGoOn("with all three")
	}
	cancel()
	require.NoError(t, <-done)
	for i := 1; i < len(versions); i++ {
		require.Greater(t, versions[i], versions[i-1])
	}
	got := must.Do(s.Get(t.Context(), state.KindRun, "counter"))(t)
	require.Equal(t, fmt.Sprint(len(versions)-1), string(got.Data))
	require.Equal(t, versions[len(versions)-1], got.Version)
}

// putUntilAnswered repeats a write that got no answer: on a busy machine an election may take
// longer than a call.
func putUntilAnswered(ctx context.Context, s state.Store, r state.Record) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, eventually)
	defer cancel()
	for {
		version, err := s.Put(ctx, r)
		if err == nil || errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrExists) || ctx.Err() != nil {
			return version, err
		}
	}
}
