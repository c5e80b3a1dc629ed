package main

import (
	"context"

	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

func newUnfenceCommand(c *cli) *cobra.Command {
	var w waiting
	var reason string
	cmd := &cobra.Command{
		Use:   "unfence NODE --reason WHY",
		Short: "bring back what is Held, was fenced with --off-only, or is about to be",
		Long: `Power a host on again that was fenced with --off-only or whose run is Held, wait
for its Node and restore it. Before the Node is isolated it stops the run.

With --wait the exit status is 0 when the run ended, 1 when it is still or again
Held, 6 after --timeout.`,
		Args: wants("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.unfence(cmd.Context(), args[0], reason, w)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	w.flags(cmd)
	return cmd
}

func (c *cli) unfence(ctx context.Context, node, reason string, w waiting) error {
	if err := needReason(reason, "fencectl unfence "+node); err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return err
	}
	rep, err := c.client().Do(ctx, api.Order{Verb: api.Unfence, Cluster: c.cluster, Node: node, Reason: reason})
	if err != nil {
		return failed("unfence "+node, err)
	}
	return c.accepted(ctx, w, rep, &goal{unfence: true})
}
