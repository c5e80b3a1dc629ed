package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// newestRuns is how many runs status shows of one target.
const newestRuns = 3

// targetStatus is all that status shows of one target.
type targetStatus struct {
	wire.Explanation
	Holds []wire.HoldStatus `json:"holds"`
	BMCs  []wire.BMC        `json:"bmcs"`
	Runs  []wire.RunRecord  `json:"runs"` // the newest, oldest first
}

// statusOf shows one Node, or Machine, on one screen: what fenced thinks of it, its holds, its BMCs and its
// newest runs. It exits with 2 unless all is well.
func (c *cli) statusOf(ctx context.Context, of string) error {
	s, err := c.readTarget(ctx, of)
	if err != nil {
		return requestError("read the status of "+of, err)
	}
	body, err := encode(s)
	if err != nil {
		return err
	}
	return c.printDegraded(!s.isWell(), body, func() error { return c.printTarget(s, time.Now()) }, cmp.Or(s.Node, s.Machine))
}

// readTarget asks the daemon what the name means, and then for all that is known of that.
func (c *cli) readTarget(ctx context.Context, of string) (s targetStatus, err error) {
	s = targetStatus{Holds: []wire.HoldStatus{}, BMCs: []wire.BMC{}, Runs: []wire.RunRecord{}}
	x, err := c.client().Explain(ctx, c.cluster, of)
	if err != nil {
		return s, err
	}
	s.Explanation = x.Value
	bmcs, err := c.client().BMCsOf(ctx, s.Cluster, cmp.Or(s.Node, s.Machine))
	if err != nil {
		return s, err
	}
	machines := []string{s.Machine} // a hold of the Machine is one of its Node
	for _, b := range bmcs.Value.BMCs {
		if b.Node != "" && b.Node == s.Node || s.Node == "" && b.Machine != "" && b.Machine == s.Machine {
			s.BMCs, machines = append(s.BMCs, b), append(machines, b.Machine)
		}
	}
	st, err := c.client().Status(ctx)
	if err != nil {
		return s, err
	}
	for _, k := range st.Value.Clusters {
		for _, h := range k.Holds {
			if k.Name == s.Cluster && (h.Node != "" && h.Node == s.Node || h.Machine != "" && slices.Contains(machines, h.Machine)) {
				s.Holds = append(s.Holds, h)
			}
		}
	}
	tl, err := c.client().NodeTimeline(ctx, s.Cluster, cmp.Or(s.Machine, s.Node))
	if err != nil {
		return s, err
	}
	s.Runs = append(s.Runs, tl.Value.Runs[max(0, len(tl.Value.Runs)-newestRuns):]...)
	return s, nil
}

// isWell says whether the target is healthy and could be fenced with its BMCs.
func (s targetStatus) isWell() bool {
	open := slices.ContainsFunc(s.Runs, func(r wire.RunRecord) bool { return r.Ended.IsZero() })
	return !open && (s.Verdict == "Healthy" || s.Verdict == "") && (wire.BMCs{BMCs: s.BMCs}).Undependable() == 0 &&
		!slices.ContainsFunc(s.Holds, func(h wire.HoldStatus) bool { return h.Quarantine })
}

// next is the command that comes next for a target that is not well; "" for one that is.
func (s targetStatus) next() string {
	o := wire.OrderOn(s.Cluster, s.Node, s.Machine)
	bad := slices.IndexFunc(s.BMCs, func(b wire.BMC) bool { return b.Undependable() })
	switch {
	case s.Next != "" || s.isWell():
		return s.Next
	case slices.ContainsFunc(s.Holds, func(h wire.HoldStatus) bool { return h.Quarantine }):
		return o.Command("release") + " --reason WHY"
	case bad >= 0 && !s.BMCs[bad].Dependable:
		return o.TestBMC()
	}
	return o.Command("explain")
}

func (c *cli) printTarget(s targetStatus, now time.Time) error {
	if err := c.printVerdict(s.Explanation, now); err != nil {
		return err
	}
	if next := s.next(); next != "" && s.Next == "" { // else it is printed
		fmt.Fprintf(c.out, "next: %s\n", escapeControl(next))
	}
	p := c.painter(c.out)
	holds := c.holdTable(wire.Status{Clusters: []wire.ClusterStatus{{Name: s.Cluster, Holds: s.Holds}}}, now)
	if err := holds.write(c.out, p, "HOLDS"); err != nil {
		return err
	}
	if len(s.BMCs) > 0 {
		fmt.Fprintln(c.out, "\nBMCS")
		if err := c.printBMCs(wire.BMCs{BMCs: s.BMCs}); err != nil {
			return err
		}
	}
	return runsTable(wire.Timeline{Runs: s.Runs}, now).write(c.out, p, "RUNS")
}
