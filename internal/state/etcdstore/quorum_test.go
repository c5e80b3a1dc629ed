package etcdstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

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

// shared is the etcd of three members for all tests that break no member.
var shared struct {
	sync.Mutex
	cluster *rig.EtcdCluster
}

// waiting is the number of parallel tests: most of the time they wait for leases.
const waiting = 12

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", strconv.Itoa(waiting)); err != nil {
			panic("etcdstore: the testing package has this flag: " + err.Error())
		}
	}
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.Stop()
	}
	os.Exit(code)
}

func sharedEtcd(t *testing.T) *rig.EtcdCluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		shared.cluster = startEtcd(t, rig.EtcdOptions{})
	}
	require.NoError(t, shared.cluster.Died())
	return shared.cluster
}

// ownEtcd starts an etcd for a test that breaks members.
func ownEtcd(t *testing.T, o rig.EtcdOptions) *rig.EtcdCluster {
	t.Helper()
	c := startEtcd(t, o)
	t.Cleanup(c.Stop)
	return c
}

func startEtcd(t *testing.T, o rig.EtcdOptions) *rig.EtcdCluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an etcd, which -short leaves out")
	}
	o.Progress = os.Stderr
	return must.Do(rig.StartEtcd(t.Context(), o))(t)
}

var prefixes atomic.Int64

func newPrefix() string { return fmt.Sprintf("/test-%d/", prefixes.Add(1)) }

func openEtcdAt(path string) (state.Store, error) {
	endpoints, prefix, _ := strings.Cut(path, " ")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return etcdstore.Open(ctx, etcdstore.Config{Endpoints: strings.Split(endpoints, ","), Prefix: prefix, DialTimeout: time.Minute})
}

func etcdPath(c *rig.EtcdCluster, prefix string) string {
	return strings.Join(c.Endpoints(), ",") + " " + prefix
}

func openEtcd(t *testing.T, c *rig.EtcdCluster, prefix string) state.Store {
	t.Helper()
	s := must.Do(openEtcdAt(etcdPath(c, prefix)))(t)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// etcdClient returns a client that writes without the store.
func etcdClient(t *testing.T, c *rig.EtcdCluster) *clientv3.Client {
	t.Helper()
	client := must.Do(clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: time.Minute, Logger: zap.NewNop()}))(t)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// awaitLeader waits for the election of a leader and returns its number.
func awaitLeader(t *testing.T, c *rig.EtcdCluster) int {
	t.Helper()
	var leader atomic.Int64
	require.Eventually(t, func() bool {
		member, err := c.Leader(t.Context())
		leader.Store(int64(member))
		return err == nil
	}, eventually, 100*time.Millisecond, "a quorum elects a leader")
	return int(leader.Load())
}
