package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

func newPlanCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "plan",
		Short: "show what fenced would do now, and what blocks the rest",
		Long: `Show what the checks ask for, in the order in which fenced would do it, each with
the gate that blocks it, if any. It changes nothing.

The exit status is 2 if fenced would do something now or cannot evaluate a cluster,
else 0.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.plan(cmd.Context()) },
	}
}

func (c *cli) plan(ctx context.Context) error {
	rep, err := c.client().Plan(ctx, c.cluster)
	if err != nil {
		return requestError("read the plan", err)
	}
	if err := c.print(rep.Body, func() error { return c.printPlan(rep.Value) }); err != nil {
		return err
	}
	if rep.Value.Acts() || rep.Value.Problems() > 0 {
		return &exitError{code: exitDegraded}
	}
	return nil
}

func (c *cli) printPlan(plan api.Plan) error {
	p, now := c.painter(c.out), time.Now()
	t := newTable("CLUSTER", "#", "NODE", "MACHINE", "ACTION", "CHECK", "LIMITED BY", "VALUE", "THRESHOLD", "EARLIEST", "WHY")
	for _, cl := range plan.Clusters {
		if cl.Problem != "" {
			fmt.Fprintf(c.out, "%s cluster %s: %s\n", p.paint(yellow, "not evaluated:"), escapeControl(cl.Cluster), escapeControl(cl.Problem))
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
