package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fenced/fenced/internal/reason"
)

// How many request objects are looked at, so that whoever may create them cannot make each decision
// take long: in one namespace, so that one does not keep the others waiting, and in all.
const (
	maxRequestsIn = 1000
	maxRequests   = 5000
)

// beyondLimit returns the requests that are not looked at; asked is sorted by age. What fenced holds
// goes first, because its host may be off; then what waits, the oldest first; then what was
// answered, and what is for nobody here.
func (w requestTables) beyondLimit(asked []*Request) map[*Request]bool {
	if len(asked) <= maxRequestsIn {
		return nil
	}
	ranks := make(map[*Request]int, len(asked))
	for _, q := range asked {
		ranks[q] = w.rank(q)
	}
	asked = slices.Clone(asked)
	slices.SortStableFunc(asked, func(a, b *Request) int { return cmp.Compare(ranks[a], ranks[b]) })
	over, in, all := map[*Request]bool{}, map[string]int{}, 0
	for _, q := range asked {
		switch {
		case q.Kind == MachineRequestKind: // there are no more than Machines
		case !q.Power.HasFinalizer && (in[q.Namespace] >= maxRequestsIn || all >= maxRequests):
			over[q] = true
		default:
			in[q.Namespace]++
			all++
		}
	}
	return over
}

// rank says how early a request is looked at.
func (w requestTables) rank(q *Request) int {
	switch {
	case q.Power.HasFinalizer:
		return 0
	case q.Power.Answered():
		return 2
	}
	if x, _ := w.findSubject(q); x.Machine == nil && x.Node == nil {
		return 3
	}
	return 1
}

// overLimit is what becomes of a request that is not looked at.
func (w requestTables) overLimit(q *Request) Requested {
	x, _ := w.findSubject(q)
	r := Requested{Request: q, Check: RuleOf(q)}
	r.Target = newTarget(&r.Check, &x)
	r.Target.set(Indeterminate, reason.RequestLimit, fmt.Sprintf("fenced looks at %d requests of namespace %s, and at %d in all: "+
		"this one has its turn when others are answered or deleted", maxRequestsIn, q.Namespace, maxRequests))
	return r
}
