package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

type confirmOptions struct {
	waitFlags
	reason string
	yes    bool
	dryRun bool
}

func newConfirmOffCommand(c *cli) *cobra.Command {
	var o confirmOptions
	cmd := &cobra.Command{
		Use:   "confirm-off NODE --reason WHY",
		Short: "confirm that a host is off when no BMC can prove it (admin)",
		Long: `Confirm that the host of NODE is off and cannot start. Your confirmation replaces
the proof: fenced isolates the Node, so that its pods and volumes can move to other
nodes. If the host is running after all, two machines may write to one disk.
Disconnect its power first.

The command shows what is known about the host (the readings of its BMCs, its Node,
its Lease) and what happens next, then asks for the node's name; --yes skips the
prompt. fenced refuses while any BMC reads On, while the Node is Ready, while its
Lease is renewed, and while any gate that is not about the BMC fails. The record
shows for good that a person confirmed the power-off.

Afterwards the run is Held (ConfirmedOff) and the host stays off until fencectl
unfence, or until the Node registers again after another boot of the same machine.`,
		Args: exactArgs("NODE"),
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
	line := "fencectl confirm-off " + node + inCluster(c.cluster)
	if err := needReason(o.reason, line); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
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
		typed, err := c.confirmName(ctx, order, "type the node's name to confirm that its host is off and cannot start: ")
		if err != nil {
			return err
		}
		order.Typed = typed
	}
	order.Yes = o.yes
	rep, err := c.client().Do(ctx, order)
	if err != nil {
		return requestError("confirm-off "+node, err)
	}
	return c.showAndWait(ctx, o.waitFlags, rep, &goal{confirmed: true, fromHeld: true})
}
