package stop

import (
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/state"
)

// Cluster is what a Stop needs from one cluster.
type Cluster interface {
	// Clock returns the API server's clock minus this host's clock, or 0 if the two differ
	// by no more than is allowed. seen reports whether the whole cluster was seen recently:
	// before that, nobody knows whether this host's clock is right.
	Clock() (skew time.Duration, seen bool)
	// BeQuiet begins a quiet period at a time. // I16
	BeQuiet(from time.Time)
	// Wake makes the cluster decide again at once, because a stop began or ended.
	Wake()
}

// clusters are the clusters of one daemon by name.
type clusters struct{ live.Map[Cluster] }

// named returns the clusters that a stop is about: the one of that name, or all of them for
// state.AllClusters.
func (c *clusters) named(cluster string) map[string]Cluster {
	if cluster == state.AllClusters {
		return c.All()
	}
	if one := c.Get(cluster); one != nil {
		return map[string]Cluster{cluster: one}
	}
	return nil
}

func (c *clusters) beQuiet(cluster string, from time.Time) {
	for _, one := range c.named(cluster) {
		one.BeQuiet(from)
	}
}

func (c *clusters) wake(cluster string) {
	for _, one := range c.named(cluster) {
		one.Wake()
	}
}

// names returns the names of the clusters that a stop is about, in order.
func (c *clusters) names(cluster string) []string { return slices.Sorted(maps.Keys(c.named(cluster))) }
