package etcdstore

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/internal/state"
)

// The values of the keys of ownership. An unknown field of a newer fenced is ignored, because
// a value that was read is never written back.
type (
	instanceValue struct {
		// Clusters are those that the instance is configured for, without those that it leaves to
		// the others.
		Clusters []string `json:"clusters"`
	}
	ownerValue struct {
		Instance string `json:"instance"`
	}
	lastValue struct {
		Instance string `json:"instance"`
		// Released means that the owner deleted its key after its last command had ended,
		// and after the last commands of lost owners before it had ended.
		Released bool `json:"givenUp"`
	}
)

// ownershipPrefix begins all keys of ownership.
func (s *store) ownershipPrefix() string { return s.prefix + "ha/" }

func (s *store) instanceKey(instance string) string {
	return s.ownershipPrefix() + "member/" + url.PathEscape(instance)
}

func (s *store) ownerKey(cluster string) string {
	return s.ownershipPrefix() + "owner/" + url.PathEscape(cluster)
}

func (s *store) lastKey(cluster string) string {
	return s.ownershipPrefix() + "last/" + url.PathEscape(cluster)
}

// view says which instances run and who owns which cluster, at one revision.
type view struct {
	instances map[string]instanceEntry // by name
	owners    map[string]ownerEntry    // by cluster
	last      map[string]lastEntry     // by cluster
}

type instanceEntry struct {
	revision int64 // create revision of the key
	clusters []string
}

type ownerEntry struct {
	instance string
	epoch    int64 // create revision of the key
	lease    clientv3.LeaseID
}

type lastEntry struct {
	version  int64 // modification revision of the key
	released bool
}

// readView reads all keys of ownership in one request.
func (s *store) readView(ctx context.Context) (view, error) {
	v := view{instances: map[string]instanceEntry{}, owners: map[string]ownerEntry{}, last: map[string]lastEntry{}}
	var resp *clientv3.GetResponse
	err := s.retry(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, s.ownershipPrefix(), clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return view{}, err
	}
	for _, kv := range resp.Kvs {
		kind, escaped, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.ownershipPrefix()), "/")
		name, err := url.PathUnescape(escaped)
		if err != nil {
			continue // fenced writes no such key
		}
		// A value that cannot be decoded is taken as empty: the key itself still counts.
		switch kind {
		case "member":
			var value instanceValue
			_ = json.Unmarshal(kv.Value, &value)
			v.instances[name] = instanceEntry{revision: kv.CreateRevision, clusters: value.Clusters}
		case "owner":
			var value ownerValue
			_ = json.Unmarshal(kv.Value, &value)
			v.owners[name] = ownerEntry{instance: value.Instance, epoch: kv.CreateRevision, lease: clientv3.LeaseID(kv.Lease)}
		case "last":
			var value lastValue
			_ = json.Unmarshal(kv.Value, &value)
			v.last[name] = lastEntry{version: kv.ModRevision, released: value.Released}
		}
	}
	return v, nil
}

// Import relies on this.
var _ state.Shared = (*store)(nil)

// Instances implements state.Shared.
func (s *store) Instances(ctx context.Context) ([]string, error) {
	v, err := s.readView(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(v.instances)), nil
}

// wants returns whether the key of an instance names a cluster.
func (v view) wants(instance, cluster string) bool {
	return slices.Contains(v.instances[instance].clusters, cluster)
}

// preferredInstance returns the instance that should own a cluster, among those that run and
// want it. It leaves one instance out. It returns "" if there is none.
func (v view) preferredInstance(cluster, except string) string {
	var candidates []string
	for name, entry := range v.instances {
		if name != except && slices.Contains(entry.clusters, cluster) {
			candidates = append(candidates, name)
		}
	}
	return preferred(candidates, cluster)
}
