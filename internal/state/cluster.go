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

// Key is under which the cluster is stored.
func (c Cluster) Key() string { return clusterKey(c.Name) }

var typeCluster = typed[Cluster]{
	kind: KindCluster, key: Cluster.Key, version: func(c *Cluster) *uint64 { return &c.Version },
	name: func(c Cluster) string { return ordered(c.Name) },
}

// NewClusters is an empty table of clusters, AllClusters among them.
func NewClusters(changed func(Cluster)) *Table[Cluster] { return newTable(typeCluster, changed) }

// SaveCluster writes the cluster durably and returns it with its new version.
func SaveCluster(ctx context.Context, s Store, c Cluster) (Cluster, error) {
	if c.Name == allClustersKey {
		return c, fmt.Errorf("save cluster %q: the name is reserved", c.Name)
	}
	return typeCluster.save(ctx, s, c)
}

// LoadCluster reads a cluster. One that was never saved has only its name, and
// version 0, so that it can be changed and saved at once.
func LoadCluster(ctx context.Context, s Store, cluster string) (Cluster, error) {
	c, err := typeCluster.get(ctx, s, clusterKey(cluster))
	if errors.Is(err, ErrNotFound) {
		return Cluster{Name: cluster}, nil
	}
	return c, err
}

// LoadClusters reads all clusters that were ever saved, AllClusters among
// them, beside an error that names each unreadable one.
func LoadClusters(ctx context.Context, s Store) ([]Cluster, error) { return typeCluster.list(ctx, s) }

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
