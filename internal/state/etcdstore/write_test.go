package etcdstore

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
)

// ShortPace is how long a test waits for what an instance does after a while.
const ShortPace = 5 * time.Second

func init() {
	defaultCallTimeout = 30 * time.Second // on a busy machine an answer of etcd, or an election, may take many seconds
	pace = func(ttl time.Duration) time.Duration { return min(ttl, ShortPace) }
}

// ShortCalls makes the calls of a store as short as the product's. No goroutine may use it yet.
func ShortCalls(s state.Store) state.Store {
	s.(*store).callTimeout = 6 * time.Second
	return s
}

// lostAnswer returns a store with an etcd of its own, for tests of answers that are lost.
func lostAnswer(t *testing.T) (*store, *rig.EtcdCluster) {
	if testing.Short() {
		t.Skip("needs an etcd, which -short leaves out")
	}
	c := must.Do(rig.StartEtcd(t.Context(), rig.EtcdOptions{Members: 1, Progress: os.Stderr}))(t)
	t.Cleanup(c.Stop)
	s := must.Do(openEtcd(t.Context(), Config{Endpoints: c.Endpoints(), Prefix: "/l/", DialTimeout: time.Minute}))(t)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s, c
}

// carryOut makes a write as etcd does if the answer is lost.
func (s *store) carryOut(t *testing.T, kind state.Kind, version uint64, data string) write {
	n := must.Do(s.newNonce())(t)
	value, _ := pack(n, []byte(data))
	w := write{kind: kind, key: s.kindPrefix(kind) + "k", version: version, nonce: n}
	w.ops = []clientv3.Op{clientv3.OpPut(w.key, string(value))}
	resp := must.Do(s.commit(t.Context(), w, version))(t)
	require.True(t, resp.Succeeded)
	return w
}

func TestAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	s, _ := lostAnswer(t)
	put := func(kind state.Kind, version uint64, data string) (uint64, error) {
		return s.Put(t.Context(), state.Record{Kind: kind, Key: "k", Version: version, Data: []byte(data)})
	}
	read := func(kind state.Kind) state.Record {
		return must.Do(s.Get(t.Context(), kind, "k"))(t)
	}

	// A repeated write finds that it was carried out.
	w := s.carryOut(t, state.KindRun, 0, "one")
	v := must.Do(s.write(t.Context(), w))(t)
	require.Equal(t, read(state.KindRun).Version, v)

	// A worker that got no answer continues from the version that it has.
	for range 2 {
		w = s.carryOut(t, state.KindRun, v, "unheard of")
		s.uncertain.add(w)
		v = must.Do(put(state.KindRun, v, "next"))(t)
		require.Equal(t, "next", string(read(state.KindRun).Data))
	}
	// It does not overwrite a later write of another instance.
	s.uncertain.add(s.carryOut(t, state.KindRun, v, "unheard of"))
	s.carryOut(t, state.KindRun, read(state.KindRun).Version, "by another")
	_, err := put(state.KindRun, v, "over it")
	require.ErrorIs(t, err, state.ErrConflict)
	require.Equal(t, "by another", string(read(state.KindRun).Data))

	// This is not done for a record with several writers, nor for one that is created.
	s.uncertain.add(s.carryOut(t, state.KindSlot, 0, "of a"))
	_, err = put(state.KindSlot, 0, "of b")
	require.ErrorIs(t, err, state.ErrExists)
	held := read(state.KindSlot).Version
	s.uncertain.add(s.carryOut(t, state.KindSlot, held, "of a still"))
	_, err = put(state.KindSlot, held, "of b")
	require.ErrorIs(t, err, state.ErrConflict)
}

// A write without an answer gives a signal like a write of another user. So does, for a while,
// every own write: it may be the one without an answer.
func TestWatchTellsOfWritesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s, c := lostAnswer(t)
	changed := s.Watch(t.Context())
	signalled := func(within time.Duration) bool {
		select {
		case <-changed:
			return true
		case <-time.After(within):
			return false
		}
	}
	put := func(ctx context.Context, key string) error {
		_, err := s.Put(ctx, state.Record{Kind: state.KindPin, Key: key})
		return err
	}
	const soon, quiet = time.Minute, 300 * time.Millisecond
	silent := func(key string) bool { // an election also gives a signal, but not each time
		for begun := time.Now(); time.Since(begun) < soon; {
			require.NoError(t, put(t.Context(), key+time.Now().String()))
			if !signalled(quiet) {
				return true
			}
		}
		return false
	}
	require.True(t, signalled(soon), "the watch stands")
	require.True(t, silent("before"), "our own write gives no signal")

	require.NoError(t, c.Freeze(0)) // from here on no signal comes from etcd
	begun := time.Now()
	brief, cancel := context.WithTimeout(t.Context(), quiet)
	defer cancel()
	require.ErrorIs(t, put(brief, "unheard of"), context.DeadlineExceeded)
	require.True(t, signalled(soon), "nobody knows what is stored")
	require.NoError(t, c.Thaw(0))

	require.NoError(t, put(t.Context(), "after"))
	for signalled(time.Second) { // that write, and the one without an answer
	}
	require.NoError(t, put(t.Context(), "sure of nothing"))
	require.True(t, signalled(soon), "it may be the one without an answer")

	s.watchers.mu.Lock()
	until := s.watchers.uncertainUntil
	s.watchers.uncertainUntil = time.Now()
	s.watchers.mu.Unlock()
	assert.False(t, until.Before(begun.Add(uncertainFor)))
	assert.True(t, until.Before(time.Now().Add(uncertainFor)))
	require.True(t, silent("sure again"), "our own write gives no signal")
}

// forbidding is an etcd that can refuse access to the keys of ownership.
type forbidding struct {
	clientv3.KV
	reads, writes atomic.Bool
}

func (k *forbidding) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if k.reads.Load() && strings.Contains(key, "/ha/") {
		return nil, rpctypes.ErrPermissionDenied
	}
	return k.KV.Get(ctx, key, opts...)
}

func (k *forbidding) Txn(ctx context.Context) clientv3.Txn {
	if k.writes.Load() {
		return forbidden{k.KV.Txn(ctx)}
	}
	return k.KV.Txn(ctx)
}

type forbidden struct{ clientv3.Txn }

func (f forbidden) If(...clientv3.Cmp) clientv3.Txn { return f }

func (f forbidden) Then(...clientv3.Op) clientv3.Txn { return f }

func (f forbidden) Else(...clientv3.Op) clientv3.Txn { return f }

func (f forbidden) Commit() (resp *clientv3.TxnResponse, err error) {
	return nil, rpctypes.ErrPermissionDenied
}

// While etcd refuses access to the keys of ownership, Owner reports the problem. After the end
// of a claim, its uncertain writes are forgotten.
func TestOwnershipThatTheStoreRefuses(t *testing.T) {
	t.Parallel()
	s, _ := lostAnswer(t)
	kv := &forbidding{KV: s.client.KV}
	s.client.KV = kv
	kv.writes.Store(true)
	owners := must.Do(NewOwners(s, OwnersConfig{Instance: "a", TTL: 15 * time.Second}))(t)
	owners.Add("prod")
	guarding := make(chan state.Claim, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- owners.Run(ctx, func(ctx context.Context, c state.Claim) { guarding <- c; <-ctx.Done() })
	}()
	problem := func(want string) func() bool {
		return func() bool { return strings.Contains(owners.Owner("prod").Problem, want) }
	}
	const patience = 2 * time.Minute
	require.Eventually(t, problem("register instance \"a\""), patience, 10*time.Millisecond)
	kv.reads.Store(true)
	kv.writes.Store(false)
	require.Eventually(t, problem("read the owners of the clusters"), patience, 10*time.Millisecond)
	kv.writes.Store(true)
	kv.reads.Store(false)
	require.Eventually(t, problem("claim cluster \"prod\""), patience, 10*time.Millisecond)
	assert.Contains(t, owners.Owner("prod").Problem, "permission denied")
	kv.writes.Store(false)
	claim := <-guarding
	require.Eventually(t, func() bool { return owners.Owner("prod") == state.Owner{Instance: "a", Epoch: claim.Epoch} }, patience, 10*time.Millisecond)

	under := fencingToken{key: s.ownerKey("prod"), epoch: int64(claim.Epoch)}
	s.uncertain.add(write{kind: state.KindRun, key: "ours", version: 1, token: under})
	s.uncertain.add(write{kind: state.KindRun, key: "theirs", version: 1, token: fencingToken{key: s.ownerKey("test"), epoch: 1}})
	cancel()
	require.NoError(t, <-done)
	assert.Len(t, s.uncertain.byKey, 1)
	assert.Contains(t, s.uncertain.byKey, "theirs")
}

func TestErrorSaysOnceThatTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{client: clientv3.NewCtxClient(t.Context()), callTimeout: defaultCallTimeout}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.retry(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, "context deadline exceeded", err.Error())
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = s.retry(ctx, func(context.Context) error { return rpctypes.ErrNoLeader })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "no leader")

		begun := time.Now()
		err = s.retry(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		assert.ErrorContains(t, err, "no answer within")
		assert.Equal(t, s.callTimeout, time.Since(begun), "a call is bounded")
	})
}

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
