package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

type fenceOptions struct {
	waitFlags
	about
	reason  string
	offOnly bool
	yes     bool
	dryRun  bool
}

func newFenceCommand(c *cli) *cobra.Command {
	var o fenceOptions
	cmd := &cobra.Command{
		Use:   "fence NODE|--machine NAMESPACE/NAME --reason WHY",
		Short: "power a node's host off, isolate its Node, and bring both back",
		Long: `Power a node's host off, isolate its Node and bring both back: the six steps.

The command first shows the target, its pods and its BMC, the effect and the gates
that do not pass, then asks for the node's name on the terminal; --yes skips the
prompt (admin only). With --dry-run it asks every gate and the BMC, and stops; who
may only look may do that. In mode observe an admin may fence a node without arming.
If a run already fences the node, the order joins it. With --off-only the host stays
off and the run stays Held until fencectl unfence.

With --machine the order is about a Machine, which may have no Node. Then there is
nothing to isolate: the host is powered off and on once.

With --wait the exit status is 0 if the run is done, 1 if it is Held and a person is
needed, 3 if a gate aborted it, and 6 after --timeout. A Waiting run is waited for,
because it goes on by itself: give --timeout.`,
		Args: o.args,
		RunE: func(cmd *cobra.Command, args []string) error { return c.fence(cmd.Context(), args, o) },
	}
	o.about.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.reason, "reason", "", "why, for the records (mandatory)")
	flags.BoolVar(&o.offOnly, "off-only", false, "leave the host off until fencectl unfence")
	flags.BoolVar(&o.yes, "yes", false, "do not ask for the node's name (admin)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would be done and what forbids it (exit 3), then stop")
	o.waitFlags.flags(cmd)
	return cmd
}

func (c *cli) fence(ctx context.Context, args []string, o fenceOptions) error {
	command := "fencectl fence " + o.typed(args) + inCluster(c.cluster)
	line := fmt.Sprintf("%s --reason %q", command, o.reason)
	if err := needReason(o.reason, command); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	order := o.of(api.Order{Verb: api.Fence, Cluster: c.cluster, Reason: o.reason, OffOnly: o.offOnly}, args)
	if o.dryRun {
		return c.dryRun(ctx, order)
	}
	if !o.yes {
		if !isTerminal(c.in) {
			return usageError(errors.New("fence asks for "+nameOf(order)+" on a terminal, and there is none"), line+" --yes   (role admin)")
		}
		if _, err := c.confirmName(ctx, order, "type "+nameOf(order)+" to fence it: "); err != nil {
			return err
		}
	}
	order.Yes = o.yes
	rep, err := c.client().Do(ctx, order)
	if err != nil {
		return requestError("fence "+order.Of(), err)
	}
	return c.showAndWait(ctx, o.waitFlags, rep, &goal{offOnly: o.offOnly, newRun: !rep.Value.Joined})
}

// needReason checks, before anything is sent, that there is a reason and that the daemon accepts it.
func needReason(reason, line string) error {
	if err := api.CheckReason(strings.TrimSpace(reason)); err != nil {
		return usageError(err, line+` --reason "disk fails, ticket 4711"`)
	}
	return nil
}
