package state

import (
	"errors"
	"fmt"
	"time"
)

// AllClusters is the cluster name of the record that pauses all clusters.
const AllClusters = ""

// allClustersKey is the key of AllClusters, because a key must not be empty. No cluster may
// have this name.
const allClustersKey = "*"

// Cluster holds the orders of people for a whole cluster. The zero value is neither armed
// nor paused; it also stands for a record that was lost.
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
	PausedUntil  time.Time `json:"pausedUntil,omitzero"` // zero: until it is resumed
	// ResumedAt is when people ended a pause. A quiet period starts then.
	ResumedAt time.Time `json:"resumedAt,omitzero"`

	// Scope is the scope of the configuration when the daemon last saw the whole cluster.
	Scope Scope `json:"scope,omitzero"`
}

// Scope is the part of a configuration that says what the daemon may act on. A start with
// a larger scope begins with a quiet period. // I18
type Scope struct {
	Mode   string            `json:"mode"`
	Checks map[string]string `json:"checks,omitempty"` // name of a check in policies.d -> digest of what it selects
	// Requests is what the configuration allows remediation requests beyond the default.
	Requests []string `json:"requests,omitempty"`
}

// Key returns the key of the record.
func (c Cluster) Key() string { return clusterKey(c.Name) }

var clusterRecord = recordType[Cluster]{
	kind: KindCluster, key: Cluster.Key, version: func(c *Cluster) *uint64 { return &c.Version },
	name: func(c Cluster) string { return clusterTitle(c.Name) },
	check: func(c Cluster) error {
		if c.Name == allClustersKey {
			return errors.New("the name is reserved")
		}
		return nil
	},
	lasts: func(Cluster) bool { return true }, // a pause, and what was armed // I23
}

// NewClusters returns an empty table of clusters, for AllClusters too. See Table.
func NewClusters(changed func(Cluster)) *Table[Cluster] { return newTable(clusterRecord, changed) }

// clusterTitle names the record of a cluster in error messages.
func clusterTitle(cluster string) string {
	if cluster == AllClusters {
		return "the record of all clusters"
	}
	return fmt.Sprintf("cluster %q", cluster)
}

func clusterKey(cluster string) string {
	if cluster == AllClusters {
		return allClustersKey
	}
	return cluster
}
