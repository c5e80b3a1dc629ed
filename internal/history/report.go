package history

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
)

// Now is what the daemon knows at the end of the period, beside the log.
type Now struct {
	Runs    []wire.RunRecord // of the state
	Blocked []wire.Blocked
	BMCs    wire.BMCCount
}

// The phases that are no step of their own.
const (
	phaseDetection = "Detection"
	phaseProof     = "Proof"
	phaseRun       = "Run"
)

// phases are all, in their order, and what each is.
var phases = []struct{ name, means string }{
	{phaseDetection, "from the condition that a check names until the run began: the timeout of the check, and what was refused meanwhile"},
	{string(remediate.PowerOff), "step 1: from its begin until the host was proven off"},
	{phaseProof, "in step 1: between the two reads of Off; only of the runs that this process of fenced carried out"},
	{string(remediate.DeleteNode), "step 2: until the Node was saved and deleted, or tainted"},
	{string(remediate.PowerOn), "step 3: until the host was on"},
	{string(remediate.AwaitNode), "step 4: until the Node was Ready again"},
	{string(remediate.RestoreNode), "step 5: until the Node had its labels, taints and cordon"},
	{string(remediate.Reprovision), "step 6: until the Machine was deleted"},
	{phaseRun, "from the begin of a run until it was Done"},
}

// Report is what the entries say. It ends the history.
func (h *History) Report(now Now) wire.PeriodReport {
	h.refusals.close()
	h.bmcs.close()
	h.limits.close()
	r := wire.PeriodReport{Since: h.period.Since, Until: h.period.Until, Cluster: h.period.Cluster}
	onlyStored := h.runs.addStored(now.Runs)
	r.Evidence = h.evidence.report()
	r.Evidence.RunsOfState = onlyStored
	r.Evidence.Dropped = h.runs.dropped + h.refusals.dropped + h.bmcs.dropped + h.limits.dropped
	r.Modes, r.Fenced, r.Would = h.modes.report(), h.runs.report(), h.refusals.observed()
	r.Refused = h.refusals.reasons(now.Blocked)
	r.Phases = []wire.PhaseTimes{}
	for _, p := range phases {
		if took := h.runs.samples[p.name]; took != nil {
			r.Phases = append(r.Phases, wire.PhaseTimes{Phase: p.name, Means: p.means, Times: took.times()})
		}
	}
	r.BMCs = h.outages(now.BMCs, r.Evidence.CoveredSeconds)
	r.Limits = h.closedLimits()
	r.Summary = summary(&r)
	return r
}

// outages lists the devices that were not dependable, the longest first.
func (h *History) outages(now wire.BMCCount, covered float64) wire.BMCsInPeriod {
	out := wire.BMCsInPeriod{Total: now.Total, NotDependable: now.NotDependable, NeverChecked: now.NotChecked, Outages: []wire.BMCOutage{}}
	for k, one := range h.bmcs.of {
		if one.count == 0 {
			continue
		}
		share := 0.0
		if covered > 0 {
			share = min(1, max(0, 1-one.total.Seconds()/covered))
		}
		out.Outages = append(out.Outages, wire.BMCOutage{Cluster: k.cluster, Node: k.node, Device: k.name, Count: one.count,
			LongestSeconds: one.longest.Seconds(), TotalSeconds: one.total.Seconds(), GoodShare: share, Reason: one.text, Lasts: !one.since.IsZero()})
	}
	slices.SortFunc(out.Outages, func(a, b wire.BMCOutage) int {
		return cmp.Or(-cmp.Compare(a.TotalSeconds, b.TotalSeconds), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Device, b.Device))
	})
	if n := len(out.Outages); n > maxShown {
		out.Outages, out.OutagesMore = out.Outages[:maxShown], n-maxShown
	}
	return out
}

func (h *History) closedLimits() []wire.LimitsOfACheck {
	out := []wire.LimitsOfACheck{}
	for k, one := range h.limits.of {
		if one.count+one.near > 0 {
			out = append(out, wire.LimitsOfACheck{Cluster: k.cluster, Check: k.name, Near: one.near, Closed: one.count,
				LongestSeconds: one.longest.Seconds(), TotalSeconds: one.total.Seconds(), Lasts: !one.since.IsZero(), Message: one.text})
		}
	}
	slices.SortFunc(out, func(a, b wire.LimitsOfACheck) int {
		return cmp.Or(-cmp.Compare(a.Closed, b.Closed), -cmp.Compare(a.Near, b.Near), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Check, b.Check))
	})
	return out[:min(len(out), maxShown)]
}

// durations are the newest of all that were added, and the longest of all.
type durations struct {
	newest[time.Duration]
	longest time.Duration
}

func (d *durations) add(took time.Duration) {
	d.longest = max(d.longest, took)
	d.newest.add(took, maxKeys)
}

// times sums them up. The percentiles are durations that occurred, of the newest.
func (d *durations) times() wire.Times {
	at := func(share float64) float64 { return times.Quantile(d.list, share).Seconds() }
	return wire.Times{Count: len(d.list) + d.more, MedianSeconds: at(0.5), P95Seconds: at(0.95), MaxSeconds: d.longest.Seconds()}
}

// newest is a list that keeps its newest, which come last.
type newest[T any] struct {
	list []T
	more int // how many it does not have any more
}

// add appends one. At least the last keep are kept, and at most twice as many.
func (n *newest[T]) add(v T, keep int) {
	if n.list = append(n.list, v); len(n.list) > 2*keep {
		n.more += len(n.list) - keep
		n.list = append(n.list[:0], n.list[len(n.list)-keep:]...)
	}
}

// shown sorts the list, and returns as much of its end as a report shows, and how many it leaves out.
func (n *newest[T]) shown(compare func(a, b T) int) (list []T, more int) {
	sort.SliceStable(n.list, func(i, j int) bool { return compare(n.list[i], n.list[j]) < 0 }) // slices would put the algorithm into the program for each T
	out := max(0, len(n.list)-maxShown)
	return append([]T{}, n.list[out:]...), n.more + out
}
