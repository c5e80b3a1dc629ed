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

// The values of the keys of ownership. An unknown field of a newer fenced is ignored:
// they are never written back, and nothing is decided by what is not known.
type (
	memberValue struct {
		Clusters []string `json:"clusters"`
	}
	ownerValue struct {
		Instance string `json:"instance"`
	}
	lastValue struct {
		Instance string `json:"instance"`
		// GivenUp: the owner's last command had ended before he deleted his key, and that
		// of whoever was lost before him.
		GivenUp bool `json:"givenUp"`
	}
)

func (s *store) sharedPrefix() string { return s.prefix + "ha/" }

func (s *store) memberKey(instance string) string {
	return s.sharedPrefix() + "member/" + url.PathEscape(instance)
}

func (s *store) ownerKey(cluster string) string {
	return s.sharedPrefix() + "owner/" + url.PathEscape(cluster)
}

func (s *store) lastKey(cluster string) string {
	return s.sharedPrefix() + "last/" + url.PathEscape(cluster)
}

// view is who lives and who owns what, at one revision.
type view struct {
	members map[string]memberSeen
	owners  map[string]ownerSeen
	last    map[string]lastSeen
}

type memberSeen struct {
	since    int64 // create revision
	clusters []string
}

type ownerSeen struct {
	instance string
	epoch    int64
	lease    clientv3.LeaseID
}

type lastSeen struct {
	version int64
	givenUp bool
}

// look reads the keys of ownership in one request.
func (s *store) look(ctx context.Context) (view, error) {
	v := view{members: map[string]memberSeen{}, owners: map[string]ownerSeen{}, last: map[string]lastSeen{}}
	var resp *clientv3.GetResponse
	err := s.try(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, s.sharedPrefix(), clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return view{}, err
	}
	for _, kv := range resp.Kvs {
		kind, escaped, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.sharedPrefix()), "/")
		name, err := url.PathUnescape(escaped)
		if err != nil {
			continue // not a key that any fenced writes
		}
		// A value that cannot be read is empty: that the key is there still counts.
		switch kind {
		case "member":
			var value memberValue
			_ = json.Unmarshal(kv.Value, &value)
			v.members[name] = memberSeen{since: kv.CreateRevision, clusters: value.Clusters}
		case "owner":
			var value ownerValue
			_ = json.Unmarshal(kv.Value, &value)
			v.owners[name] = ownerSeen{instance: value.Instance, epoch: kv.CreateRevision, lease: clientv3.LeaseID(kv.Lease)}
		case "last":
			var value lastValue
			_ = json.Unmarshal(kv.Value, &value)
			v.last[name] = lastSeen{version: kv.ModRevision, givenUp: value.GivenUp}
		}
	}
	return v, nil
}

// An import must see who uses the store.
var _ state.Shared = (*store)(nil)

// Instances implements state.Shared.
func (s *store) Instances(ctx context.Context) ([]string, error) {
	v, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(v.members)), nil
}

// best is the living instance that a cluster falls to.
func (v view) best(cluster string) string {
	var can []string
	for name, m := range v.members {
		if slices.Contains(m.clusters, cluster) {
			can = append(can, name)
		}
	}
	return best(can, cluster)
}
