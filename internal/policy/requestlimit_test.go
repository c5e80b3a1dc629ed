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
	rules := Rules{RequestNamespaces: []string{"many", "ns0", "ns1", "ns2", "ns3", "ns4", "ns5"}}
	over := func(requests []Request) (names []string, other int) {
		for _, q := range askedLedgerWith(t, rules, requests...).Requested(false, requestedAt) {
			switch {
			case q.Target.Reason != reason.RequestLimit:
				other++
			case !slices.ContainsFunc(mine, func(m Request) bool { return m.Name == q.Request.Name }):
				names = append(names, "junk")
			default:
				names = append(names, q.Request.Name)
				assert.False(t, q.Target.Acts())
				assert.Contains(t, q.Target.Message, " requests of namespace "+q.Request.Namespace)
			}
		}
		slices.Sort(names)
		return slices.Compact(names), other
	}
	few, _ := over(append(junk(900, "many"), mine...))
	assert.Empty(t, few)
	names, others := over(append(junk(maxRequestsIn, "many"), mine...))
	assert.Equal(t, []string{"answered", "junk", "late"}, names)
	assert.Equal(t, maxRequestsIn+2, others, "those of the namespace with what is held, m-1 of another, and what is for nobody")

	var all []Request
	for i := range 6 {
		all = append(all, junk(maxRequestsIn, fmt.Sprint("ns", i))...)
	}
	names, others = over(append(all, mine...))
	assert.Equal(t, maxRequests+1, others)
	assert.Equal(t, []string{"junk"}, names, "what is held, and every namespace that wants few")
	list := askedLedgerWith(t, rules, append(all, mine...)...).Requested(false, requestedAt)
	require.True(t, slices.IsSortedFunc(list, func(a, b Requested) int { return a.Request.Created.Compare(b.Request.Created) }), "the oldest first, as ever")
}

// Seats are shared by namespace: one that wants few gets them, whatever others want.
func TestSeatsAreSharedByNamespace(t *testing.T) {
	var requests []Request
	rules := Rules{}
	for n, namespace := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		rules.RequestNamespaces = append(rules.RequestNamespaces, namespace)
		for i := range []int{1000, 1000, 1000, 1000, 1000, 1000, 1000, 10}[n] {
			requests = append(requests, Request{Name: fmt.Sprint("q-", i), UID: fmt.Sprint(namespace, i), Namespace: namespace, NodeName: "n-2", Created: requestedAt.Add(-time.Hour)})
		}
	}
	seated := map[string]int{}
	for _, q := range askedLedgerWith(t, rules, requests...).Requested(false, requestedAt) {
		if q.Target.Reason != reason.RequestLimit {
			seated[q.Request.Namespace]++
		} else {
			assert.Regexp(t, "^fenced looks at 71[23] requests of namespace "+q.Request.Namespace+":", q.Target.Message)
		}
	}
	assert.Equal(t, 10, seated["h"], "it comes last by name, and makes few")
	for namespace, n := range seated {
		assert.True(t, namespace == "h" || n == 712 || n == 713, "%s: %d", namespace, n)
	}
}

// A request that may not be for its target takes no seat, and one of a tenant's own Machines comes after
// those of the namespaces where the Machines of Nodes are.
func TestUntrustedRequestsTakeNoSeat(t *testing.T) {
	var requests []Request
	for i := range 2 * maxRequests {
		requests = append(requests, Request{Name: fmt.Sprint("q-", i), Namespace: fmt.Sprint("tenant-", i%7), NodeName: "n-1", Created: requestedAt.Add(-time.Hour),
			Power: &PowerRequest{HasFinalizer: i%2 == 0, FinalizerElsewhere: i%3 == 0}})
	}
	l := askedLedger(t, append(requests, Request{Name: "m-1", Owners: owner("mu"), Created: requestedAt})...)
	for _, q := range l.Requested(false, requestedAt) {
		assert.NotEqual(t, reason.RequestLimit, q.Target.Reason)
		if mine := q.Request.Name == "m-1"; mine != q.Target.Acts() || mine == slices.Contains(q.Target.Refusals, reason.RequestNotTrusted) {
			t.Fatalf("%s: %v", q.Request.Name, q.Target.Refusals)
		}
	}
	var own []Request
	var machines []Change
	for i := range 5*maxRequestsIn + 10 {
		m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: fmt.Sprint("a-tenant-", i%6), Name: fmt.Sprint("x-", i), UID: fmt.Sprint(i)}
		machines = append(machines, put(m))
		own = append(own, Request{Name: m.Name, Namespace: m.Namespace, Owners: []Owner{{Kind: "Machine", Name: m.Name, UID: m.UID}}, Created: requestedAt.Add(-time.Hour)})
	}
	l = askedLedger(t, append(own, Request{Name: "m-1", Owners: owner("mu"), Created: requestedAt})...)
	l.Apply(requestedAt, machines...)
	over := 0
	for _, q := range l.Requested(false, requestedAt) {
		if q.Target.Reason == reason.RequestLimit {
			over++
			assert.NotEqual(t, "m-1", q.Request.Name)
		}
	}
	assert.Equal(t, 11, over)
}

// Whoever may write requests can copy fenced's finalizer into them. They take no more seats than others, and none of others.
func TestForgedFinalizersTakeNoMoreSeats(t *testing.T) {
	requests := []Request{{Name: "m-1", Owners: owner("mu"), Created: requestedAt, Power: &PowerRequest{HasFinalizer: true}}}
	var all []string
	for i := range maxRequestsIn + 500 {
		requests = append(requests, Request{Name: fmt.Sprint("q-", i), Namespace: "tenant", Owners: []Owner{{Kind: "Machine", Name: "x", UID: "xu"}}, Created: requestedAt.Add(-time.Hour),
			Power: &PowerRequest{HasFinalizer: true}})
	}
	l := askedLedger(t, requests...)
	l.Apply(requestedAt, put(&Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "tenant", Name: "x", UID: "xu"}))
	for _, q := range l.Requested(false, requestedAt) {
		if q.Target.Reason == reason.RequestLimit {
			all = append(all, q.Request.Namespace)
		}
	}
	assert.Len(t, all, 500)
	assert.Equal(t, []string{"tenant"}, slices.Compact(all))
}
