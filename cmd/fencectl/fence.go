package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/wire"
)

// promptedOptions are those of an order that first shows its effect and asks for the node's name.
type promptedOptions struct {
	waitFlags
	about
	reason  string
	offOnly bool
	yes     bool
	dryRun  bool
}

func (o *promptedOptions) addFlags(cmd *cobra.Command, shown string) {
	o.about.flags(cmd)
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the records (mandatory)")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask for the node's name (admin)")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, shown+" (exit 3), then stop")
	o.waitFlags.flags(cmd)
}

func newFenceCommand(c *cli) *cobra.Command {
	var o promptedOptions
	cmd := &cobra.Command{
		Use:   "fence NODE|RUN|--machine NAMESPACE/NAME --reason WHY",
		Short: "power a node's host off, isolate its Node, and bring both back",
		Long: `Power a node's host off, isolate its Node and bring both back: the six steps.

The command first shows the target, its pods and its BMC, the effect and the gates
that do not pass, then asks for the node's name on the terminal; --yes skips the
prompt (admin only). With --dry-run it asks every gate and the BMC, and stops; viewers
may do that. In mode observe an admin may fence a node without arming.
If a run already fences the node, the order joins it. With --off-only the host stays
off and the run stays Held until fencectl unfence.

With --machine the order is about a Machine, which may have no Node. Then there is
nothing to isolate: the host is powered off and on once.

With --wait the exit status is 0 if the run is done, 1 if it is Held and a person is
needed, 3 if a gate aborted it, and 6 after --timeout. It also waits for a Waiting
run, which goes on by itself: give --timeout to bound that.`,
		Args: o.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.prompted(cmd.Context(), args, o, wire.Order{Verb: wire.Fence, OffOnly: o.offOnly}, "to fence it", func(r wire.OrderResult) *goal {
				return &goal{offOnly: o.offOnly, newRun: !r.Joined}
			})
		},
	}
	o.addFlags(cmd, "show what would be done and what forbids it")
	cmd.Flags().BoolVar(&o.offOnly, "off-only", false, "leave the host off until fencectl unfence")
	return cmd
}

// prompted gives an order whose effect is shown first; then the name is typed.
func (c *cli) prompted(ctx context.Context, args []string, o promptedOptions, order wire.Order, to string, goalOf func(wire.OrderResult) *goal) error {
	line := fmt.Sprintf("fencectl %s %s%s", order.Verb, o.typed(args), inCluster(c.cluster))
	if err := needReason(o.reason, line); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	order.Cluster, order.Reason = c.cluster, o.reason
	order = o.of(order, args)
	if o.dryRun {
		return c.dryRun(ctx, order)
	}
	if !o.yes {
		if !isTerminal(c.in) {
			return usageError(fmt.Errorf("%s asks for %s on a terminal, and there is none", order.Verb, nameOf(order)), fmt.Sprintf("%s --reason %q --yes   (role admin)", line, o.reason))
		}
		var err error
		if order, err = c.confirmName(ctx, order, to); err != nil {
			return err
		}
	}
	if order.Verb == wire.ConfirmOff {
		order.Typed = order.Of() // as it was typed; with --yes it is refused if that is not the Node's own name
	}
	order.Yes = o.yes
	rep, err := c.client().Do(ctx, order)
	if err != nil {
		return requestError(string(order.Verb)+" "+order.Of(), err)
	}
	return c.showAndWait(ctx, o.waitFlags, rep, goalOf(rep.Value))
}

func newConfirmOffCommand(c *cli) *cobra.Command {
	var o promptedOptions
	cmd := &cobra.Command{
		Use:   "confirm-off NODE|RUN|--machine NAMESPACE/NAME --reason WHY",
		Short: "confirm that a host is off when no BMC can prove it (admin)",
		Long: `Confirm that the host of NODE is off and cannot start. Your confirmation replaces
the proof: fenced isolates the Node, so that its pods and volumes can move to other
nodes. If the host is running after all, two machines may write to one disk.
Disconnect its power first.

The command shows what is known about the host (the readings of its BMCs, its Node,
its Lease) and what happens next, then asks for the node's name; --yes skips the
prompt, and then NODE must be the name of the Node itself. fenced refuses while any BMC
reads On, while the Node is Ready, while its Lease is renewed, and while any gate that
is not about the BMC fails. In mode observe it begins no run while the cluster is not
armed. The record shows for good that a person confirmed the power-off.

Afterwards the run is Held (ConfirmedOff) and the host stays off until fencectl
unfence, or until the Node registers again after another boot of the same machine.`,
		Args: o.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.prompted(cmd.Context(), args, o, wire.Order{Verb: wire.ConfirmOff}, "to confirm that its host is off and cannot start", func(wire.OrderResult) *goal {
				return &goal{confirmed: true, fromHeld: true}
			})
		},
	}
	o.addFlags(cmd, "show what is known and what forbids it")
	return cmd
}

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
	order := wire.Order{Verb: wire.Arm, Cluster: c.cluster, Reason: reason, DryRun: true}
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
		prompt := fmt.Sprintf("type the cluster's name (%s) to arm it: ", escapeControl(plan.Cluster))
		if err := c.typeName(ctx, prompt, plan.Cluster, "nothing was done"); err != nil {
			return err
		}
	}
	order.DryRun, order.Cluster = false, plan.Cluster // the one that was shown
	return c.sendOrder(ctx, order, "arm", waitFlags{}, nil)
}

// showPlanOf shows what would follow the order to arm.
func (c *cli) showPlanOf(r wire.OrderResult, plan *wire.ClusterPlan) error {
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
