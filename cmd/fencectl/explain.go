package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/page"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

func newExplainCommand(c *cli) *cobra.Command {
	var a about
	var w watchFlag
	cmd := &cobra.Command{
		Use:   "explain NODE|RUN|--machine NAMESPACE/NAME",
		Short: "show every gate that must pass before a node is fenced",
		Long: `Show every gate that must pass before a node is fenced, in the order in which fenced
asks them: the present value, the value that is needed, and where that is set. It
changes nothing, and reads no BMC: the gates host and identity show what a probe or
the last BMC health check found. PASS is "not yet" for what was not read yet; fenced
reads that before a run starts. The exit status is 0 whatever the verdict.`,
		Args: a.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), c, func(ctx context.Context) error { return c.explain(ctx, a.name(args)) })
		},
	}
	a.flags(cmd)
	w.flags(cmd)
	return cmd
}

func (c *cli) explain(ctx context.Context, of string) error {
	rep, err := c.client().Explain(ctx, c.cluster, of)
	if err != nil {
		return requestError("explain "+of, err)
	}
	return c.print(rep.Body, func() error { return c.printExplanation(rep.Value, time.Now()) }, cmp.Or(rep.Value.Node, rep.Value.Machine))
}

func (c *cli) printExplanation(e wire.Explanation, now time.Time) error {
	if err := c.printVerdict(e, now); err != nil {
		return err
	}
	p := c.painter(c.out)
	if names := unchecked(e.Gates); len(names) > 0 {
		fmt.Fprintf(c.out, "%s %s\n", p.paint(yellow, "not checked yet:"), strings.Join(names, ", "))
	}
	return c.gateTable(e.Gates, now).write(c.out, p, "GATES")
}

// printVerdict prints what the gates come to.
func (c *cli) printVerdict(e wire.Explanation, now time.Time) error {
	p := c.painter(c.out)
	verdict := cmp.Or(escapeControl(e.Verdict), "no check covers it")
	if e.Verdict == "" && e.Run != nil && e.Next != "" { // its Node may be deleted
		verdict = "under remediation"
	}
	fmt.Fprintf(c.out, "%s in %s: %s%s\n", escapeControl(cmp.Or(e.Machine, e.Node)), escapeControl(e.Cluster), verdict, note(e.Message))
	if e.Refused != "" {
		note := page.ClassNote(e.Class)
		if note != "" {
			note = " (" + note + ")"
		}
		fmt.Fprintf(c.out, "%s %s\n", p.paint(yellow, "refused:"), escapeControl(e.Refused)+note)
	}
	if !e.Earliest.IsZero() {
		fmt.Fprintf(c.out, "earliest: %s (in %s), if nothing else changes\n", clock(e.Earliest), span(e.Earliest.Sub(now)))
	}
	if e.Run != nil {
		fmt.Fprintf(c.out, "run: %s %s%s\n", escapeControl(e.Run.ID), escapeControl(e.Run.Result), note(e.Run.Reason))
	}
	if e.Next != "" {
		_, err := fmt.Fprintf(c.out, "next: %s\n", escapeControl(e.Next))
		return err
	}
	return nil
}

// unchecked names the gates that pass only because nothing has been read for them yet.
func unchecked(gates []reason.Gate) (names []string) {
	for _, g := range gates {
		if g.Unchecked {
			names = append(names, escapeControl(g.Name))
		}
	}
	return names
}

func (c *cli) gateTable(gates []reason.Gate, now time.Time) *table {
	t := newTable("GATE", "PASS", "REASON", "VALUE", "THRESHOLD", "SOURCE", "UNTIL")
	for _, g := range gates {
		pass := cell{text: "yes", color: green}
		switch {
		case g.Waived:
			pass = cell{text: "waived", color: yellow}
		case g.Unchecked:
			pass = cell{text: "not yet", color: yellow}
		case !g.Pass:
			pass = cell{text: "no", color: red}
		}
		t.add(g.Name, pass, orDash(string(g.Reason)), orDash(g.Value), orDash(g.Threshold), orDash(g.Source), c.when(g.Until, now))
	}
	return t
}

func newPlanCommand(c *cli) *cobra.Command {
	var w watchFlag
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "show what fenced would do now, and what blocks the rest",
		Long: `Show what the checks ask for, in the order in which fenced would do it, each with
the gate that blocks it, if any. It changes nothing.

The exit status is 2 if fenced would do something now or cannot evaluate a cluster,
else 0.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return w.run(cmd.Context(), c, c.plan) },
	}
	w.flags(cmd)
	return cmd
}

func (c *cli) plan(ctx context.Context) error {
	rep, err := c.client().Plan(ctx, c.cluster)
	if err != nil {
		return requestError("read the plan", err)
	}
	return c.printDegraded(rep.Value.Acts() || rep.Value.Problems() > 0, rep.Body, func() error { return c.printPlan(rep.Value) }, planned(rep.Value)...)
}

// planned names the targets of a plan, for -o name.
func planned(plan wire.Plan) (names []string) {
	for _, cl := range plan.Clusters {
		for _, a := range cl.Actions {
			names = append(names, cmp.Or(a.Node, a.Machine))
		}
	}
	return names
}

func (c *cli) printPlan(plan wire.Plan) error {
	p, now := c.painter(c.out), time.Now()
	t := newTable("CLUSTER", "ORDER", "NODE", "MACHINE", "ACTION", "CHECK", "REFUSED", "VALUE", "THRESHOLD", "EARLIEST", "MESSAGE")
	t.spare = []string{"THRESHOLD", "VALUE"}
	for _, cl := range plan.Clusters {
		if cl.Problem != "" {
			fmt.Fprintf(c.out, "%s cluster %s: %s\n", p.paint(yellow, "not evaluated:"), escapeControl(cl.Cluster), escapeControl(cl.Problem))
		}
		for _, w := range cl.Warnings {
			fmt.Fprintf(c.out, "%s cluster %s: %s\n", p.paint(yellow, "warning:"), escapeControl(cl.Cluster), escapeControl(w))
		}
		for _, a := range cl.Actions {
			limit, value, threshold := cell{text: "-", color: green}, "-", "-"
			if a.Refused != "" {
				limit = cell{text: a.Refused, color: yellow}
			}
			if a.Gate != nil {
				value, threshold = orDash(a.Gate.Value), orDash(a.Gate.Threshold)
			}
			t.add(cl.Cluster, fmt.Sprint(a.Order), orDash(a.Node), orDash(a.Machine), a.Action, a.Check, limit, value, threshold, c.when(a.Earliest, now), orDash(a.Message))
		}
		t.addMore(cl.Cluster, cl.ActionsMore)
	}
	if len(t.rows) == 0 && plan.Problems() == 0 {
		_, err := fmt.Fprintln(c.out, "no check asks for anything")
		return err
	}
	return t.write(c.out, p, "")
}

// checkName is a check as people write it.
func checkName(kind, namespace, name string) string {
	return kind + " " + strings.TrimPrefix(namespace+"/"+name, "/")
}
