package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

func newStatusCommand(c *cli) *cobra.Command {
	var w watchFlag
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "show whether fenced is armed, which targets are not healthy, and the open runs",
		Long: `Show whether fenced is armed, which targets are not healthy, and the open runs.

The exit status is 2 if fenced is degraded: a cluster is not armed, it or a cluster is
paused, a cluster is not evaluated (stale view, another owner), the audit log cannot
be written, a check is invalid, disabled, selects nothing, misspells a condition, or
its limit allows no remediation, no check covers any node, or a node that a check
covers could not be fenced (none of these in mode respond, where checks start
nothing), a host is in quarantine, a deleted Machine does not disappear, fenced must
leave a cluster to another instance because its own host is to be fenced, a target that
a check wants remediated is blocked, a run is Waiting or Held or had an error in its
step, or a BMC is not dependable. With -o wide it also lists the checks.

With NODE, which may be a run or NAMESPACE/NAME of a Machine, it shows that target alone:
the verdict, its holds, its BMCs and its newest runs. The exit status is then 2 if it is
not healthy, has an open run or is in quarantine, or if a BMC of it is not dependable.`,
		Args: atMostOneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), c, func(ctx context.Context) error {
				if len(args) > 0 {
					return c.statusOf(ctx, args[0])
				}
				return c.status(ctx)
			})
		},
	}
	w.flags(cmd)
	return cmd
}

func (c *cli) status(ctx context.Context) error {
	rep, err := c.client().Status(ctx)
	if err != nil {
		return requestError("read the status", err)
	}
	st := rep.Value
	return c.printDegraded(len(st.Degraded()) > 0, rep.Body, func() error { return c.printStatus(st, time.Now()) }, deviating(st)...)
}

// deviating names the targets that are not healthy, for -o name.
func deviating(st wire.Status) (names []string) {
	for _, k := range st.Clusters {
		for _, d := range k.Deviating {
			names = append(names, cmp.Or(d.Node, d.Machine))
		}
	}
	return names
}

func (c *cli) printStatus(st wire.Status, now time.Time) error {
	p := c.painter(c.out)
	fmt.Fprintf(c.out, "fenced %s: %s\n", escapeControl(st.Version), headline(st, p))
	for _, why := range st.Degraded() {
		c.printSentence(p, "degraded:", why)
	}
	for _, k := range st.Clusters {
		if k.Hint != "" {
			c.printSentence(p, "hint:", "cluster "+k.Name+": "+k.Hint)
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
		{"LAST 24 HOURS", c.recentTable(st, now)},
	} {
		if err := t.table.write(c.out, p, t.title); err != nil {
			return err
		}
	}
	return nil
}

// printSentence prints a sentence above the tables behind its label. Programs read it on one line, people on as many as
// their terminal needs.
func (c *cli) printSentence(p painter, label, text string) {
	width := 0
	if c.output != "wide" && terminalWidth(c.out) > 0 {
		width = p.width
	}
	for i, line := range sentenceLines(label+" "+escapeControl(text), width) {
		if i == 0 {
			line = p.paint(yellow, label) + strings.TrimPrefix(line, label)
		}
		fmt.Fprintln(c.out, line)
	}
}

// sentenceLines breaks a sentence into lines of at most width columns (0: no limit) between words, all but the first
// indented. What comes next begins a line, so that it is found at once.
func sentenceLines(text string, width int) (lines []string) {
	if width <= 0 || widthOf(text) <= width {
		return []string{text}
	}
	const indent, next = "  ", "Next: "
	what, command, found := strings.Cut(text, " "+next)
	lines = wrap(what, width-len(indent))
	if found {
		lines = append(lines, wrap(next+command, width-len(indent))...)
	}
	for i := range lines[1:] {
		lines[i+1] = indent + lines[i+1]
	}
	return lines
}

func headline(st wire.Status, p painter) string {
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

func clusterTable(st wire.Status) *table {
	t := newTable("CLUSTER", "MODE", "OWNER", "EPOCH", "VIEW AGE", "NODES", "DEVIATING")
	t.spare = []string{"EPOCH"}
	for _, k := range st.Clusters {
		t.add(k.Name, mode(k), owner(k), k.Epoch, span(time.Duration(k.ViewAgeSeconds*float64(time.Second))), k.Nodes, len(k.Deviating)+k.DeviatingMore)
	}
	return t
}

// mode is the mode of a cluster, and whether a person armed it.
func mode(k wire.ClusterStatus) string {
	if k.Mode == "observe" && k.Armed {
		return "observe (armed)"
	}
	return k.Mode
}

// owner is which instance acts on a cluster.
func owner(k wire.ClusterStatus) string {
	switch {
	case k.Owner:
		return "yes"
	case k.HeldBy != "": // the line above the tables has all of it
		who, _, _ := strings.Cut(k.HeldBy, ",")
		who, _, _ = strings.Cut(who, " on host ")
		return "no: " + who
	}
	return orDash(k.OwnerName)
}

// checkTable is shown with -o wide; without it degraded checks have their line
// at the top.
func (c *cli) checkTable(st wire.Status) *table {
	t := newTable("CLUSTER", "CHECK", "STATE", "HEALTHY", "EXPECTED", "ALLOWED", "REMEDIATIONS ALLOWED")
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

func (c *cli) targetTable(st wire.Status, now time.Time) *table {
	if c.output == "wide" {
		t := newTable("CLUSTER", "NODE", "MACHINE", "CHECK", "VERDICT", "REASON", "SINCE", "BLOCKED BY", "MESSAGE")
		for _, k := range st.Clusters {
			for _, d := range k.Deviating {
				by := blockedBy(st, k.Name, d, now)
				if b := blockedTarget(st, k.Name, d); b != nil {
					by.text += ": " + b.Message
				}
				t.add(k.Name, orDash(d.Node), orDash(d.Machine), orDash(d.Check), verdict(d.Verdict), d.Reason, c.when(d.Since, now), by, d.Message)
			}
			t.addMore(k.Name, k.DeviatingMore)
		}
		return t
	}
	t := newTable("CLUSTER", "NODE", "VERDICT", "REASON", "SINCE", "BLOCKED BY")
	for _, k := range st.Clusters {
		for _, d := range k.Deviating {
			t.add(k.Name, cmp.Or(d.Node, d.Machine), verdict(d.Verdict), d.Reason, c.when(d.Since, now), blockedBy(st, k.Name, d, now))
		}
		t.addMore(k.Name, k.DeviatingMore)
	}
	return t
}

// holdTable is the Nodes that are not fenced for now. Those that one order about labels holds are one row, but with -o wide.
func (c *cli) holdTable(st wire.Status, now time.Time) *table {
	t := newTable("CLUSTER", "NODE", "BY", "SINCE", "UNTIL", "REASON")
	for _, k := range st.Clusters {
		together := map[wire.HoldStatus]int{} // by all but the name
		for _, h := range k.Holds {
			h.Node, h.Machine = "", ""
			together[h]++
		}
		for _, h := range k.Holds {
			order := h
			order.Node, order.Machine = "", ""
			if n := together[order]; h.Selector != "" && c.output != "wide" && n != 1 {
				if together[order] = 0; n == 0 {
					continue // the row is there
				}
				h.Node, h.Machine = fmt.Sprintf("%d with %s", n, h.Selector), ""
			}
			by := cell{text: h.By}
			if h.Quarantine {
				by = cell{text: "quarantine", color: red}
			}
			t.add(k.Name, cmp.Or(h.Node, h.Machine), by, c.when(h.Since, now), c.when(h.Until, now), h.Reason)
		}
	}
	return t
}

func (c *cli) runTable(st wire.Status, now time.Time) *table {
	t := newTable("RUN", "CLUSTER", "NODE", "STEP", "ATTEMPT", "STARTED", "UNTIL", "REASON", "LAST ERROR")
	t.spare = []string{"LAST ERROR", "ATTEMPT", "STARTED"} // the lines above the tables have the error
	if c.output == "wide" {
		t.head = append(t.head, "MACHINE", "NOTE")
	}
	for _, r := range st.Runs {
		t.add(r.ID, r.Cluster, cmp.Or(r.Node, r.Machine), stepCell(r.Step), r.Attempt, c.when(r.Started, now), c.when(cmp.Or(r.Deadline, r.NextTry), now),
			orDash(r.Reason), c.lastError(r.LastError, now), orDash(r.Machine), orDash(r.Note))
	}
	return t
}

// recentTable is the runs that ended in the last 24 hours.
func (c *cli) recentTable(st wire.Status, now time.Time) *table {
	t := newTable("ENDED", "RUN", "CLUSTER", "NODE", "RESULT", "TOOK", "REASON", "ACTOR")
	t.spare = []string{"ACTOR", "TOOK"}
	if c.output == "wide" {
		t.head = append(t.head, "NOTE")
	}
	for _, r := range st.Recent {
		t.add(c.when(r.Ended, now), r.ID, r.Cluster, cmp.Or(r.Node, r.Machine), cell{text: r.Result, color: resultColor(r.Result)},
			span(r.Ended.Sub(r.Started)), orDash(r.Reason), cmp.Or(r.Actor, "fenced"), orDash(r.Note))
	}
	t.addMore("-", st.RecentMore)
	return t
}

func stepCell(step string) cell {
	if n := wire.StepNumber(step); n > 0 {
		return cell{text: fmt.Sprintf("%d/6 %s", n, step), color: yellow}
	}
	return warn(step, step != wire.ResultWaiting)
}

// warn is a cell that draws the eye; red is for what is bad.
func warn(text string, bad bool) cell {
	if bad {
		return cell{text: text, color: red}
	}
	return cell{text: text, color: yellow}
}

func verdict(v string) cell { return warn(v, v == "Unhealthy") }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// requestTable is the remediation requests for which something is left to do.
func (c *cli) requestTable(st wire.Status) *table {
	t := newTable("CLUSTER", "REQUEST", "NODE", "PHASE", "RUN", "REASON")
	if c.output == "wide" {
		t.head = append(t.head, "FINALIZER", "MESSAGE")
	}
	for _, k := range st.Clusters {
		for _, q := range k.Requests {
			t.add(k.Name, checkName(q.Kind, q.Namespace, q.Name), orDash(cmp.Or(q.Node, q.Machine)), phaseCell(q.Phase), orDash(q.Run), orDash(q.Reason),
				yesNo(q.Finalizer), orDash(q.Message))
		}
		t.addMore(k.Name, k.RequestsMore)
	}
	return t
}

func phaseCell(phase string) cell { return warn(phase, phase == "Held") }

// bmcLine returns how many BMCs a fence could not rely on, or an empty string while none is known.
func bmcLine(n wire.BMCCount) string {
	if n.Total == 0 {
		return ""
	}
	text := fmt.Sprintf("BMCs: %d, %d not dependable", n.Total, n.NotDependable)
	if n.NotChecked > 0 {
		text += fmt.Sprintf(", %d not checked yet", n.NotChecked)
	}
	return text
}

// blockedTarget is what forbids the remediation that a check wants; nil if nothing does.
func blockedTarget(st wire.Status, cluster string, d wire.TargetStatus) *wire.Blocked {
	i := slices.IndexFunc(st.Blocked, func(b wire.Blocked) bool {
		return b.Run == "" && b.Cluster == cluster && b.Check == d.Check && b.Node == d.Node && b.Machine == d.Machine
	})
	if i < 0 {
		return nil
	}
	return &st.Blocked[i]
}

// blockedBy is the cell of a target that is not remediated.
func blockedBy(st wire.Status, cluster string, d wire.TargetStatus, now time.Time) cell {
	b := blockedTarget(st, cluster, d)
	if b == nil {
		return cell{text: "-"}
	}
	return cell{text: blockedText(*b, now), color: red}
}

// blockedText is the reason, since when, and what comes next.
func blockedText(b wire.Blocked, now time.Time) string {
	text := b.Reason + " for " + age(b.Since, now)
	switch {
	case b.NextTry.After(now):
		return text + ", next try in " + span(b.NextTry.Sub(now))
	case !b.NextTry.IsZero():
		return text + ", next try now"
	case b.Class == string(reason.Person):
		return text + ", needs a person"
	}
	return text + ", until that changes"
}

func (c *cli) lastError(e *wire.RunError, now time.Time) cell {
	switch {
	case e == nil:
		return cell{text: "-"}
	case c.output == "wide" || e.Reason == "":
		return cell{text: age(e.At, now) + " ago: " + e.Text(), color: yellow}
	}
	return cell{text: e.Reason + ", " + age(e.At, now) + " ago", color: yellow}
}
