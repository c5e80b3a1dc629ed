package admit

import (
	"time"

	"golang.org/x/time/rate"
)

// What is refused, and what changes of a check, is told at a limited pace.
const (
	// One subject (a refused pair, or a check) may tell tellBurst changes at once, and one more
	// each tellEvery, so that a reason that flaps does not fill the journal and the audit log.
	tellBurst = 6
	tellEvery = 2 * time.Minute
	// A cluster may tell clusterBurst changes at once, and clusterRate in a second, so that a
	// site that goes down does not fill the queue of the audit log, which starts of runs need.
	clusterBurst = 100
	clusterRate  = 50
	tellRetry    = time.Second // after the limit of the cluster
)

// newPace is the limit of one subject.
func newPace() *rate.Limiter { return rate.NewLimiter(rate.Every(tellEvery), tellBurst) }

// newClusterPace is the limit of all subjects of a cluster.
func newClusterPace() *rate.Limiter { return rate.NewLimiter(clusterRate, clusterBurst) }

// mayTell takes a place in both limits, that of one subject and that of the cluster, and returns
// zero; or, if one of them has none, when to ask again.
func mayTell(one, all *rate.Limiter, now time.Time) time.Time {
	if tokens := one.TokensAt(now); tokens < 1 {
		return now.Add(time.Duration((1-tokens)*float64(tellEvery)) + time.Second)
	}
	if !all.AllowN(now, 1) {
		return now.Add(tellRetry)
	}
	one.AllowN(now, 1)
	return time.Time{}
}
