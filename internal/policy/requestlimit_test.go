package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
)

// Whoever makes more requests than fenced looks at is told so, and keeps neither another namespace
// nor what fenced holds from its turn.
func TestRequestsBeyondTheLimitAreRefused(t *testing.T) {
	junk := func(n int, namespace string) (list []Request) {
		for i := range n {
			list = append(list, Request{Name: fmt.Sprintf("%s-%d", namespace, i), Namespace: namespace, NodeName: "n-2", Created: requestedAt.Add(-time.Hour)})
		}
		return list
	}
	mine := []Request{
		{Name: "m-1", Owners: owner("mu"), Created: requestedAt},
		{Name: "held", Namespace: "many", NodeName: "n-1", Created: requestedAt, Power: &PowerRequest{HasFinalizer: true}},
		{Name: "answered", Namespace: "many", NodeName: "n-1", Power: &PowerRequest{Phase: PhaseSucceeded}},
		{Name: "for-nobody", Namespace: "many"},
		{Name: "late", Namespace: "many", NodeName: "n-2", Created: requestedAt},
	}
	over := func(requests []Request) (names []string, other int) {
		for _, q := range askedLedger(t, requests...).Requested(false, requestedAt) {
			switch {
			case q.Target.Reason != reason.RequestLimit:
				other++
			case !slices.ContainsFunc(mine, func(m Request) bool { return m.Name == q.Request.Name }):
				names = append(names, "junk")
			default:
				names = append(names, q.Request.Name)
				assert.False(t, q.Target.Acts())
				assert.Contains(t, q.Target.Message, "1000 requests of namespace "+q.Request.Namespace)
			}
		}
		slices.Sort(names)
		return slices.Compact(names), other
	}
	few, _ := over(append(junk(900, "many"), mine...))
	assert.Empty(t, few)
	names, others := over(append(junk(maxRequestsIn, "many"), mine...))
	assert.Equal(t, []string{"answered", "for-nobody", "junk", "late"}, names)
	assert.Equal(t, maxRequestsIn+1, others, "those of the namespace with what is held, and m-1 of another")

	var all []Request
	for i := range 6 {
		all = append(all, junk(maxRequestsIn, fmt.Sprint("ns", i))...)
	}
	names, others = over(append(all, mine...))
	assert.Equal(t, maxRequests, others)
	assert.NotContains(t, names, "held")
	list := askedLedger(t, append(all, mine...)...).Requested(false, requestedAt)
	require.True(t, slices.IsSortedFunc(list, func(a, b Requested) int { return a.Request.Created.Compare(b.Request.Created) }), "the oldest first, as ever")
}
