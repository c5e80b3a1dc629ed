package etcdstore_test

import (
	"context"
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
