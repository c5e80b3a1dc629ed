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
	list, in := make([]place, len(asked)), map[space][]*place{}
	for i, q := range asked {
		p := &list[i]
		p.Request = q
		p.x, p.refused = w.requestSubject(q)
		switch {
		case p.countsNowhere():
		case q.Kind == MachineRequestKind: // there are no more than Machines
			p.seated = true
		default:
			from := space{q.OnManagementAPI, q.Namespace}
			in[from] = append(in[from], p)
		}
	}
	giveSeats(in, func(from space) bool {
		return w.rules.TrustNames || slices.Contains(w.rules.withTarget(w.requests.spaces, from.apart, nil, nil), from.namespace) || w.machineSpaces[from].nodes > 0
	})
	return list
}

// countsNowhere: whoever wrote the request may not decide about its target, or it has none.
func (p *place) countsNowhere() bool {
	return p.x.Machine == nil && p.x.Node == nil || p.refused.code == reason.RequestNotTrusted || p.x.NotOwned.Why != ""
}

// giveSeats lets the namespaces take a seat in turns, first those of the
// administrator and of the Machines that Nodes name. So a namespace that wants no more than its share gets all of it,
// whatever the others want. Within one, what fenced holds goes first, also where no seat is left, because its
// host may be off; then what waits, the oldest first; then what was answered. Whoever may write a request can
// write that fenced holds it, so no namespace has more seats for that.
func giveSeats(in map[space][]*place, isFirst func(space) bool) {
	free, seats := maxRequests, map[space]int{}
	for _, first := range []bool{true, false} {
		var turns []space
		for _, from := range slices.SortedFunc(maps.Keys(in), space.compare) {
			if isFirst(from) == first {
				turns = append(turns, from)
				slices.SortStableFunc(in[from], func(a, b *place) int { return cmp.Compare(a.rank(), b.rank()) })
			}
		}
		for at := 0; len(turns) > 0; at++ {
			turns = slices.DeleteFunc(turns, func(from space) bool { return at == len(in[from]) })
			for _, from := range turns {
				p := in[from][at]
				if p.seated = at < maxRequestsIn && (free > 0 || p.rank() == 0); p.seated {
					free--
					seats[from]++
				} else {
					p.over = fmt.Sprintf("fenced looks at %d requests of %s: this one has its turn when others there are answered or deleted",
						seats[from], from.text())
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
