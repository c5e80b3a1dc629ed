package main

import (
	"context"

	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

func newAbortCommand(c *cli) *cobra.Command {
	var w waiting
	var reason string
	var asIs bool
	cmd := &cobra.Command{
		Use:   "abort RUN --reason WHY",
		Short: "want no more of a run",
		Long: `Give a run up. Before its Node is isolated the host is powered on again and the run
ends Aborted; after that nothing new is begun, and the host and its Node are
brought back. A Held run goes on like with unfence.

With --as-is (admin) a Held run ends at once and its host stays as it is, whatever
that is: fenced forgets that it owes the host anything.

With --wait the exit status is 0 when the run ended, 1 when it is Held, 6 after
--timeout.`,
		Args: wants("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.abort(cmd.Context(), args[0], reason, asIs, w)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	cmd.Flags().BoolVar(&asIs, "as-is", false, "end a Held run and leave the host as it is (admin)")
	w.flags(cmd)
	return cmd
}

func (c *cli) abort(ctx context.Context, run, reason string, asIs bool, w waiting) error {
	if err := needReason(reason, "fencectl abort "+run); err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return err
	}
	rep, err := c.client().Do(ctx, api.Order{Verb: api.Abort, Cluster: c.cluster, Run: run, Reason: reason, AsIs: asIs})
	if err != nil {
		return failed("abort "+run, err)
	}
	return c.accepted(ctx, w, rep, &goal{unfence: true})
}
