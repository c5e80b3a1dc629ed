package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

type confirmOptions struct {
	waiting
	reason string
	yes    bool
	dryRun bool
}

func newConfirmOffCommand(c *cli) *cobra.Command {
	var o confirmOptions
	cmd := &cobra.Command{
		Use:   "confirm-off NODE --reason WHY",
		Short: "vouch that a host is off, where no BMC can prove it (admin)",
		Long: `Put your word in the place of a proof: the host of NODE is off and cannot come on.
Its Node is then isolated, so that its pods and volumes can go elsewhere. If the
host runs after all, two machines may write one disk: pull its mains first.

It shows what is known about the host (what its BMCs read, its Node, its Lease) and
what your word permits, and asks for the node's name; --yes goes without. It is
refused while anything reads On, while the Node is Ready or its Lease moves, and by
every gate that is not about the BMC. The record is marked for ever.

Afterwards the run is Held (ConfirmedOff) and the host is left off, until unfence,
or until the Node registers anew after another boot of the same machine.`,
		Args: wants("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.confirmOff(cmd.Context(), args[0], o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.reason, "reason", "", "why, for the records (mandatory)")
	flags.BoolVar(&o.yes, "yes", false, "do not ask for the node's name (admin)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what is known and what forbids it (exit 3), then stop")
	o.flags(cmd)
	return cmd
}

func (c *cli) confirmOff(ctx context.Context, node string, o confirmOptions) error {
	line := "fencectl confirm-off " + node
	if err := needReason(o.reason, line); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	order := api.Order{Verb: api.ConfirmOff, Cluster: c.cluster, Node: node, Reason: o.reason}
	switch {
	case o.dryRun:
		return c.dryRun(ctx, order)
	case o.yes:
		order.Typed = node
	case !isTerminal(c.in):
		return usageError(errors.New("confirm-off asks for the node's name on a terminal, and there is none"), fmt.Sprintf("%s --reason %q --yes   (role admin)", line, o.reason))
	default:
		typed, err := c.typed(ctx, order, "type the node's name to vouch that its host is off and cannot come on: ")
		if err != nil {
			return err
		}
		order.Typed = typed
	}
	order.Yes = o.yes
	rep, err := c.client().Do(ctx, order)
	if err != nil {
		return failed("confirm-off "+node, err)
	}
	return c.accepted(ctx, o.waiting, rep, &goal{confirmed: true, fromHeld: true})
}
