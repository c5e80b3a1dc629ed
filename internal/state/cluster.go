package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// AllClusters is the name under which a pause of everything is kept.
const AllClusters = ""

// allClustersKey stands for AllClusters in the store, where keys are not
// empty; no cluster may have that name.
const allClustersKey = "*"

// Cluster is what people ordered for a whole cluster. The zero value, which
// also stands for a lost record, is neither armed nor paused.
type Cluster struct {
	Name    string `json:"name"`
	Version uint64 `json:"-"`

	Armed       bool      `json:"armed,omitempty"`
	ArmedBy     string    `json:"armedBy,omitempty"`
	ArmedReason string    `json:"armedReason,omitempty"`
	ArmedAt     time.Time `json:"armedAt,omitzero"`

	Paused       bool      `json:"paused,omitempty"`
	PausedBy     string    `json:"pausedBy,omitempty"`
	PausedReason string    `json:"pausedReason,omitempty"`
	PausedAt     time.Time `json:"pausedAt,omitzero"`
	PausedUntil  time.Time `json:"pausedUntil,omitzero"` // zero = until it is resumed
	// ResumedAt starts a quiet period.
	ResumedAt time.Time `json:"resumedAt,omitzero"`

	// Scope is what the files let the daemon act on when it last saw the cluster whole.
	Scope Scope `json:"scope,omitzero"`
}

// Scope is what a configuration lets the daemon act on, as far as a later start must
// know it: with more, it begins with a quiet period. // I18
type Scope struct {
	Mode   string            `json:"mode"`
	Checks map[string]string `json:"checks,omitempty"` // of policies.d: digest of what each selects
}

// SaveCluster writes the cluster durably and returns it with its new version.
func SaveCluster(ctx context.Context, s Store, c Cluster) (Cluster, error) {
	if c.Name == allClustersKey {
		return c, fmt.Errorf("save cluster %q: the name is reserved", c.Name)
	}
	data, err := encode(c)
	if err != nil {
		return c, fmt.Errorf("save %s: %w", ordered(c.Name), err)
	}
	version, err := s.Put(ctx, Record{Kind: KindCluster, Key: clusterKey(c.Name), Version: c.Version, Data: data})
	if err != nil {
		return c, fmt.Errorf("save %s: %w", ordered(c.Name), err)
	}
	c.Version = version
	return c, nil
}

// LoadCluster reads a cluster. One that was never saved has only its name, and
// version 0, so that it can be changed and saved at once.
func LoadCluster(ctx context.Context, s Store, cluster string) (Cluster, error) {
	r, err := s.Get(ctx, KindCluster, clusterKey(cluster))
	if errors.Is(err, ErrNotFound) {
		return Cluster{Name: cluster}, nil
	}
	if err != nil {
		return Cluster{}, err
	}
	return decodeCluster(r)
}

// LoadClusters reads all clusters that were ever saved, AllClusters among
// them, beside an error that names each unreadable one.
func LoadClusters(ctx context.Context, s Store) ([]Cluster, error) {
	return load(ctx, s, KindCluster, decodeCluster)
}

func decodeCluster(r Record) (Cluster, error) {
	var c Cluster
	err := decode(r.Data, &c)
	if err == nil && clusterKey(c.Name) != r.Key {
		err = fmt.Errorf("it calls itself %q", c.Name)
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("read %s: %w", name(KindCluster, r.Key), err)
	}
	c.Version = r.Version
	return c, nil
}

// ordered names a record for people.
func ordered(cluster string) string {
	if cluster == AllClusters {
		return "what is ordered for all clusters"
	}
	return fmt.Sprintf("cluster %q", cluster)
}

func clusterKey(cluster string) string {
	if cluster == AllClusters {
		return allClustersKey
	}
	return cluster
}
