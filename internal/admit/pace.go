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
	// All checks of one kind and namespace may tell authorBurst changes at once, and authorRate in a second, so that
	// whoever may write them cannot fill these with checks that come and go.
	authorBurst = 50
	authorRate  = 1
	// A cluster may tell clusterBurst changes at once, and clusterRate in a second, so that a
	// site that goes down does not fill the queue of the audit log, which starts of runs need.
	clusterBurst = 100
	clusterRate  = 50
	tellRetry    = time.Second // at least, after a limit
)

// newPace is the limit of one subject.
func newPace() *rate.Limiter { return rate.NewLimiter(rate.Every(tellEvery), tellBurst) }

// newAuthorPace is the limit of all checks of one kind and namespace.
func newAuthorPace() *rate.Limiter { return rate.NewLimiter(authorRate, authorBurst) }

// newClusterPace is the limit of all subjects of a cluster.
func newClusterPace() *rate.Limiter { return rate.NewLimiter(clusterRate, clusterBurst) }

// mayTell takes a place in each limit and returns zero; or, if one of them has none, when to ask again.
func mayTell(now time.Time, limits ...*rate.Limiter) time.Time {
	for _, l := range limits {
		if lack := 1 - l.TokensAt(now); lack > 0 {
			return now.Add(time.Duration(lack/float64(l.Limit())*float64(time.Second)) + tellRetry)
		}
	}
	for _, l := range limits {
		l.AllowN(now, 1)
	}
	return time.Time{}
}
