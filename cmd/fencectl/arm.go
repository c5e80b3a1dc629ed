package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

// What stands above the prompt of arm, so that it fits on a small terminal: targets of the plan,
// and reasons for which others are held back.
const (
	promptTargets = 8
	promptReasons = 4
)

func newArmCommand(c *cli) *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "arm --reason WHY [--cluster NAME]",
		Short: "let fenced act on a cluster in mode observe (admin)",
		Long: `Let fenced act on a cluster in mode observe. The command first shows what would be
fenced when the quiet period (guards.quietPeriod) ends, then asks for the cluster's
name on the terminal; --yes skips the prompt. Until then fencectl disarm or pause
still stops everything.

The order is stored with the state; a daemon that loses its state is disarmed again.
A cluster in mode evaluate or respond needs no arming, and stays as it is.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.arm(cmd.Context(), reason, yes) },
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for the cluster's name")
	return cmd
}

func (c *cli) arm(ctx context.Context, reason string, yes bool) error {
	line := "fencectl arm" + inCluster(c.cluster)
	if err := needReason(reason, line); err != nil {
		return err
	}
	if !yes && !isTerminal(c.in) {
		return usageError(errors.New("arm asks for the cluster's name on a terminal, and there is none"), fmt.Sprintf("%s --reason %q --yes", line, reason))
	}
	order := api.Order{Verb: api.Arm, Cluster: c.cluster, Reason: reason, DryRun: true}
	dry, err := c.client().Do(ctx, order)
	if err != nil {
		return requestError("arm", err)
	}
	plan := dry.Value.Plan
	if dry.Value.Unchanged || plan == nil {
		return c.print(dry.Body, func() error { return c.preview(c.out, dry.Value) })
	}
	if err := c.showPlanOf(dry.Value, plan); err != nil {
		return err
	}
	if !yes {
		fmt.Fprintf(c.errs, "type the cluster's name (%s) to arm it: ", escapeControl(plan.Cluster))
		typed, err := c.readLine(ctx)
		if err != nil {
			return fmt.Errorf("read the confirmation: %w", err)
		}
		if strings.TrimSpace(typed) != plan.Cluster {
			return errors.New("not confirmed: nothing was done")
		}
	}
	order.DryRun, order.Cluster = false, plan.Cluster // the one that was shown
	return c.sendOrder(ctx, order, "arm", waitFlags{}, nil)
}

// showPlanOf shows what would follow the order to arm.
func (c *cli) showPlanOf(r api.OrderResult, plan *api.ClusterPlan) error {
	r.Message = ""
	fmt.Fprintf(c.errs, "fenced would act on cluster %s by itself:\n", escapeControl(plan.Cluster))
	if err := c.preview(c.errs, r); err != nil {
		return err
	}
	t, now, refused := newTable("  NODE", "ACTION", "CHECK"), 0, map[string]int{}
	for _, a := range plan.Actions {
		if a.Refused != "" {
			refused[a.Refused]++
			continue
		}
		if now++; now <= promptTargets {
			t.add("  "+cmp.Or(a.Node, a.Machine), a.Action, a.Check)
		}
	}
	switch {
	case plan.Problem != "":
		fmt.Fprintf(c.errs, "what would be fenced is not known: %s\n", escapeControl(plan.Problem))
	case now == 0:
		fmt.Fprintln(c.errs, "nothing would be fenced when the quiet period ends")
	default:
		fmt.Fprintf(c.errs, "%s would be fenced when the quiet period ends:\n", targets(now))
	}
	p := c.painter(c.errs)
	p.width = min(cmp.Or(p.width, promptWidth), promptWidth)
	if err := t.write(c.errs, p, ""); err != nil {
		return err
	}
	if now > promptTargets {
		fmt.Fprintf(c.errs, "  and %d more: fencectl plan%s\n", now-promptTargets, inCluster(c.cluster))
	}
	c.showRefused(refused)
	return nil
}

// showRefused shows how many targets each reason holds back, the most frequent reasons first.
func (c *cli) showRefused(refused map[string]int) {
	codes := slices.SortedFunc(maps.Keys(refused), func(a, b string) int { return cmp.Or(cmp.Compare(refused[b], refused[a]), cmp.Compare(a, b)) })
	for _, code := range codes[:min(len(codes), promptReasons)] {
		fmt.Fprintf(c.errs, "not now: %s (%s)\n", targets(refused[code]), cut(escapeControl(code), promptWidth/2))
	}
	if more := len(codes) - promptReasons; more > 0 {
		fmt.Fprintf(c.errs, "not now, for %d other reasons: fencectl plan%s\n", more, inCluster(c.cluster))
	}
}

func targets(n int) string {
	if n == 1 {
		return "1 target"
	}
	return fmt.Sprint(n, " targets")
}
