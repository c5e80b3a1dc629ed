package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

type fenceOptions struct {
	waiting
	reason  string
	offOnly bool
	yes     bool
	dryRun  bool
}

func newFenceCommand(c *cli) *cobra.Command {
	var o fenceOptions
	cmd := &cobra.Command{
		Use:   "fence NODE --reason WHY",
		Short: "power a node's host off, make it safe to replace, and bring it back",
		Long: `Power a node's host off, isolate its Node and bring both back: the six steps.

It first shows the proof of the host's identity and the effect, and asks for the
node's name on the terminal; --yes goes without and needs the role admin. An
equal run that is already under way is joined. With --off-only the host stays
off, and the run is Held, until fencectl unfence.

With --wait the exit status is 0 when the run is done, 1 when it is Held and
needs a human, 3 when it was aborted by a gate, 6 after --timeout.`,
		Args: wants("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.fence(cmd.Context(), args[0], o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.reason, "reason", "", "why, for the records (mandatory)")
	flags.BoolVar(&o.offOnly, "off-only", false, "leave the host off until unfence")
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
	if err := o.check(); err != nil {
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
		if _, err := c.typed(ctx, order, "type the node's name to fence it: "); err != nil {
			return err
		}
	}
	order.Yes = o.yes
	rep, err := c.client().Do(ctx, order)
	if err != nil {
		return failed("fence "+node, err)
	}
	return c.accepted(ctx, o.waiting, rep, &goal{offOnly: o.offOnly})
}

// needReason asks for the reason, and for one that fenced takes, before anything is sent.
func needReason(reason, line string) error {
	if err := api.CheckReason(strings.TrimSpace(reason)); err != nil {
		return usageError(err, line+` --reason "disk fails, ticket 4711"`)
	}
	return nil
}
