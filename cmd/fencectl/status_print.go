package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/api"
)

func (c *cli) printStatus(st api.Status, now time.Time) error {
	p := c.painter(c.out)
	fmt.Fprintf(c.out, "fenced %s: %s\n", escapeControl(st.Version), headline(st, p))
	for _, why := range st.Degraded() {
		fmt.Fprintf(c.out, "%s %s\n", p.paint(yellow, "degraded:"), escapeControl(why))
	}
	for _, k := range st.Clusters {
		if k.Hint != "" {
			fmt.Fprintf(c.out, "%s cluster %s: %s\n", p.paint(yellow, "hint:"), escapeControl(k.Name), escapeControl(k.Hint))
		}
	}
	if text := bmcLine(st.BMCs); text != "" {
		fmt.Fprintln(c.out, text)
	}
	for _, t := range []struct {
		title string
		table *table
	}{
		{"CLUSTERS", clusterTable(st)},
		{"CHECKS", c.checkTable(st)},
		{"DEVIATING", c.targetTable(st, now)},
		{"HOLDS", c.holdTable(st, now)},
		{"REQUESTS", c.requestTable(st)},
		{"RUNS", c.runTable(st, now)},
	} {
		if err := t.table.write(c.out, p, t.title); err != nil {
			return err
		}
	}
	return nil
}

func headline(st api.Status, p painter) string {
	switch {
	case st.Paused:
		return p.paint(yellow, "paused")
	case st.Armed:
		return p.paint(green, "armed")
	}
	armed := 0
	for i := range st.Clusters {
		if st.Clusters[i].Armed {
			armed++
		}
	}
	if armed > 0 {
		return p.paint(yellow, fmt.Sprintf("armed in %d of %d clusters", armed, len(st.Clusters)))
	}
	return p.paint(yellow, "not armed")
}

func clusterTable(st api.Status) *table {
	t := newTable("CLUSTER", "MODE", "OWNER", "EPOCH", "VIEW AGE", "NODES", "DEVIATING")
	for _, k := range st.Clusters {
		t.add(k.Name, mode(k), owner(k), k.Epoch, span(time.Duration(k.ViewAgeSeconds*float64(time.Second))), k.Nodes, len(k.Deviating)+k.DeviatingMore)
	}
	return t
}

// mode is the mode of a cluster, and whether a person armed it.
func mode(k api.ClusterStatus) string {
	if k.Mode == "observe" && k.Armed {
		return "observe (armed)"
	}
	return k.Mode
}

// owner is which instance acts on a cluster.
func owner(k api.ClusterStatus) string {
	if k.Owner {
		return "yes"
	}
	return orDash(k.OwnerName)
}

// checkTable is shown with -o wide; without it degraded checks have their line
// at the top.
func (c *cli) checkTable(st api.Status) *table {
	t := newTable("CLUSTER", "CHECK", "STATE", "HEALTHY", "EXPECTED", "ALLOWED", "ROOM")
	if c.output != "wide" {
		return t
	}
	for _, k := range st.Clusters {
		for _, check := range k.Checks {
			t.add(k.Name, checkName(check.Kind, check.Namespace, check.Name), orDash(check.State), check.Healthy, check.Expected,
				yesNo(check.Allowed), check.RemediationsAllowed)
		}
		t.addMore(k.Name, k.ChecksMore)
	}
	return t
}

func (c *cli) targetTable(st api.Status, now time.Time) *table {
	if c.output == "wide" {
		t := newTable("CLUSTER", "NODE", "MACHINE", "CHECK", "VERDICT", "REASON", c.head("FOR", "SINCE"), "BLOCKED BY", "MESSAGE")
		for _, k := range st.Clusters {
			for _, d := range k.Deviating {
				by := blockedBy(st, k.Name, d, now)
				if b := blockedTarget(st, k.Name, d); b != nil {
					by.text += ": " + b.Message
				}
				t.add(k.Name, orDash(d.Node), orDash(d.Machine), orDash(d.Check), verdict(d.Verdict), d.Reason, c.age(d.Since, now), by, d.Message)
			}
			t.addMore(k.Name, k.DeviatingMore)
		}
		return t
	}
	t := newTable("CLUSTER", "NODE", "VERDICT", "REASON", "FOR", "BLOCKED BY")
	for _, k := range st.Clusters {
		for _, d := range k.Deviating {
			t.add(k.Name, cmp.Or(d.Node, d.Machine), verdict(d.Verdict), d.Reason, c.age(d.Since, now), blockedBy(st, k.Name, d, now))
		}
		t.addMore(k.Name, k.DeviatingMore)
	}
	return t
}

// holdTable is the Nodes that are not fenced for now.
func (c *cli) holdTable(st api.Status, now time.Time) *table {
	t := newTable("CLUSTER", "NODE", "BY", c.head("FOR", "SINCE"), c.head("LEFT", "UNTIL"), "REASON")
	for _, k := range st.Clusters {
		for _, h := range k.Holds {
			left, by := "-", cell{text: h.By}
			if !h.Until.IsZero() {
				left = c.left(h.Until, now)
			}
			if h.Quarantine {
				by = cell{text: "quarantine", color: red}
			}
			t.add(k.Name, cmp.Or(h.Node, h.Machine), by, c.age(h.Since, now), left, h.Reason)
		}
	}
	return t
}

func (c *cli) runTable(st api.Status, now time.Time) *table {
	t := newTable("RUN", "CLUSTER", "NODE", "STEP", "ATTEMPT", c.head("AGE", "STARTED"), c.head("LEFT", "UNTIL"), "REASON", "LAST ERROR")
	if c.output == "wide" {
		t.head = append(t.head, "MACHINE", "NOTE")
	}
	for _, r := range st.Runs {
		left := "-"
		if until := cmp.Or(r.Deadline, r.NextTry); !until.IsZero() {
			left = c.left(until, now)
		}
		row := []any{r.ID, r.Cluster, cmp.Or(r.Node, r.Machine), stepCell(r.Step), r.Attempt, c.age(r.Started, now), left, orDash(r.Reason), c.lastError(r.LastError, now)}
		if c.output == "wide" {
			row = append(row, orDash(r.Machine), orDash(r.Note))
		}
		t.add(row...)
	}
	return t
}

func stepCell(step string) cell {
	if n := api.StepNumber(step); n > 0 {
		return cell{text: fmt.Sprintf("%d/6 %s", n, step), color: yellow}
	}
	if step == api.ResultWaiting {
		return cell{text: step, color: yellow}
	}
	return cell{text: step, color: red}
}

func verdict(v string) cell {
	if v == "Unhealthy" {
		return cell{text: v, color: red}
	}
	return cell{text: v, color: yellow}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
