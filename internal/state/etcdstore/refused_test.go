package etcdstore

import (
	"context"
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
)

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

func (f forbidden) If(...clientv3.Cmp) clientv3.Txn  { return f }
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
	owners, err := NewOwners(s, OwnersConfig{Instance: "a", TTL: 15 * time.Second})
	require.NoError(t, err)
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

// An error says only once that the time is over.
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
