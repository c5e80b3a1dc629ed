package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fenced/fenced/internal/reason"
)

// How many requests fenced looks at, so that whoever may create them cannot make each decision
// take long: in one namespace, and in all. A request that may not be for its target takes no
// seat, and needs none: it is refused without a look at the checks.
const (
	maxRequestsIn = 1000
	maxRequests   = 5000
)

// place is a request with its target, and whether it has a seat.
type place struct {
	*Request
	x       Subject
	refused refusal
	seated  bool
	// over says that others of its namespace have the seats; "" if that is not so.
	over string
}

// places finds the targets of requests, and gives out the seats; asked is sorted by age.
func (w requestTables) places(asked []*Request) []place {
	list, in := make([]place, len(asked)), map[string][]*place{}
	for i, q := range asked {
		p := &list[i]
		p.Request = q
		p.x, p.refused = w.requestSubject(q)
		switch {
		case p.countsNowhere():
		case q.Kind == MachineRequestKind: // there are no more than Machines
			p.seated = true
		default:
			in[q.Namespace] = append(in[q.Namespace], p)
		}
	}
	giveSeats(in, func(namespace string) bool {
		return w.rules.TrustNames || slices.Contains(w.requests.spaces, namespace) || w.machineSpaces[namespace].nodes > 0
	})
	return list
}

// countsNowhere: whoever wrote the request may not decide about its target, or it has none.
func (p *place) countsNowhere() bool {
	return p.x.Machine == nil && p.x.Node == nil || p.refused.code == reason.RequestNotTrusted || p.x.NotOwned.Why != ""
}

// giveSeats lets the namespaces take a seat in turns, first those of the
// administrator and of the Machines that Nodes name. So a namespace that wants no more than its share gets all of it,
// whatever the others want. Within one, what fenced holds goes first, and always, because its
// host may be off; then what waits, the oldest first; then what was answered.
func giveSeats(in map[string][]*place, isFirst func(namespace string) bool) {
	free, seats := maxRequests, map[string]int{}
	for _, first := range []bool{true, false} {
		var turns []string
		for _, namespace := range slices.Sorted(maps.Keys(in)) {
			if isFirst(namespace) == first {
				turns = append(turns, namespace)
				slices.SortStableFunc(in[namespace], func(a, b *place) int { return cmp.Compare(a.rank(), b.rank()) })
			}
		}
		for at := 0; len(turns) > 0; at++ {
			turns = slices.DeleteFunc(turns, func(namespace string) bool { return at == len(in[namespace]) })
			for _, namespace := range turns {
				p := in[namespace][at]
				if p.seated = p.rank() == 0 || at < maxRequestsIn && free > 0; p.seated {
					free--
					seats[namespace]++
				} else {
					p.over = fmt.Sprintf("fenced looks at %d requests of namespace %s: this one has its turn when others there are answered or deleted",
						seats[namespace], namespace)
				}
			}
		}
	}
}

// rank says how early a request is looked at.
func (p *place) rank() int {
	switch {
	case p.Power.HasFinalizer:
		return 0
	case p.Power.Answered():
		return 2
	}
	return 1
}

// overLimit is what becomes of a request that is not looked at.
func (p *place) overLimit() Requested {
	r := Requested{Request: p.Request, Check: RuleOf(p.Request)}
	r.Target = newTarget(&r.Check, &p.x)
	r.Target.set(Indeterminate, reason.RequestLimit, p.over)
	return r
}
