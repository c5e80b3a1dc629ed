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
	reason  string
	offOnly bool
	yes     bool
	dryRun  bool
}

func newFenceCommand(c *cli) *cobra.Command {
	var o fenceOptions
	cmd := &cobra.Command{
		Use:   "fence NODE --reason WHY",
		Short: "power a node's host off, isolate its Node, and bring both back",
		Long: `Power a node's host off, isolate its Node and bring both back: the six steps.

The command first shows the effect and every gate, then asks for the node's name on
the terminal; --yes skips the prompt (admin only). If a run already fences the node,
the order joins it. With --off-only the host stays off and the run stays Held until
fencectl unfence.

With --wait the exit status is 0 if the run is done, 1 if it is Held and a person is
needed, 3 if a gate aborted it, and 6 after --timeout.`,
		Args: exactArgs("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.fence(cmd.Context(), args[0], o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.reason, "reason", "", "why, for the records (mandatory)")
	flags.BoolVar(&o.offOnly, "off-only", false, "leave the host off until fencectl unfence")
	flags.BoolVar(&o.yes, "yes", false, "do not ask for the node's name (admin)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would be done and what forbids it (exit 3), then stop")
	o.flags(cmd)
	return cmd
}

func (c *cli) fence(ctx context.Context, node string, o fenceOptions) error {
	line := fmt.Sprintf("fencectl fence %s --reason %q", node, o.reason)
	if err := needReason(o.reason, "fencectl fence "+node); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	order := api.Order{Verb: api.Fence, Cluster: c.cluster, Node: node, Reason: o.reason, OffOnly: o.offOnly}
	if o.dryRun {
		return c.dryRun(ctx, order)
	}
	if !o.yes {
		if !isTerminal(c.in) {
			return usageError(errors.New("fence asks for the node's name on a terminal, and there is none"), line+" --yes   (role admin)")
		}
		if _, err := c.confirmName(ctx, order, "type the node's name to fence it: "); err != nil {
			return err
		}
	}
	order.Yes = o.yes
	rep, err := c.client().Do(ctx, order)
	if err != nil {
		return requestError("fence "+node, err)
	}
	return c.showAndWait(ctx, o.waitFlags, rep, &goal{offOnly: o.offOnly})
}

// needReason asks for the reason, and for one that fenced takes, before anything is sent.
func needReason(reason, line string) error {
	if err := api.CheckReason(strings.TrimSpace(reason)); err != nil {
		return usageError(err, line+` --reason "disk fails, ticket 4711"`)
	}
	return nil
}
