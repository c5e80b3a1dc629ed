package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/remediate"
)

// claims notes the claims to the cluster as soon as one member of etcd knows them. The members tell the same, in the same order.
type claims struct {
	*site
	mu       sync.Mutex
	known    int64 // the last revision that was noted
	released bool  // the last owner released the cluster, or there was none
	owner    string
}

// The keys of ownership, and of the records of runs: see internal/state/etcdstore.
const ownerKey, lastKey, runs, prefix = "/fenced/ha/owner/drill", "/fenced/ha/last/drill", "/fenced/rec/run/", "/fenced/"

// watchClaims watches at each member, with a connection that no fault touches.
func (s *site) watchClaims() error {
	secure, err := transport.TLSInfo{CertFile: s.etcd.Cert(), KeyFile: s.etcd.Key(), TrustedCAFile: s.etcd.CA()}.ClientConfig()
	if err != nil {
		return fmt.Errorf("read the etcd client's certificate: %w", err)
	}
	c := &claims{site: s, released: true}
	for _, member := range s.etcd.Endpoints() {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{member}, TLS: secure, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
		if err != nil {
			return fmt.Errorf("make an etcd client: %w", err)
		}
		s.wg.Go(func() {
			defer client.Close()
			c.watch(s.life, client)
		})
	}
	return nil
}

// watch notes what one member tells, until ctx ends. A member that is killed is watched again from where it ended.
func (c *claims) watch(ctx context.Context, client *clientv3.Client) {
	for ctx.Err() == nil {
		c.mu.Lock()
		next := c.known + 1
		c.mu.Unlock()
		watching, cancel := context.WithCancel(ctx)
		for r := range client.Watch(watching, prefix, clientv3.WithPrefix(), clientv3.WithRev(next)) {
			c.note(r.Events)
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// note notes the events of whole revisions that no other member has told before.
func (c *claims) note(events []*clientv3.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known
	for _, e := range events {
		if e.Kv.ModRevision <= known {
			continue
		}
		c.known = e.Kv.ModRevision
		switch key := string(e.Kv.Key); {
		case key == ownerKey && e.Type == clientv3.EventTypeDelete:
			c.history.add(event{Kind: end, By: c.owner})
		case key == ownerKey:
			var v struct{ Instance string }
			_ = json.Unmarshal(e.Kv.Value, &v) // fenced wrote it
			c.owner = v.Instance
			c.history.add(event{Kind: claim, By: v.Instance, Epoch: e.Kv.CreateRevision, Wait: !c.released})
		case key == lastKey:
			var v struct {
				GivenUp bool `json:"givenUp"`
			}
			_ = json.Unmarshal(e.Kv.Value, &v)
			c.released = v.GivenUp
		case strings.HasPrefix(key, runs):
			var v struct{ Data remediate.Run }
			if at := bytes.IndexByte(e.Kv.Value, '{'); at < 0 || json.Unmarshal(e.Kv.Value[at:], &v) != nil || v.Data.Intent.Action == "" {
				continue
			}
			c.history.add(event{Kind: saved(v.Data.Intent.Action), Host: v.Data.Target.Node})
		}
	}
}
