package main

import (
	"context"

	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

func newRetryCommand(c *cli) *cobra.Command {
	var w waiting
	var reason string
	cmd := &cobra.Command{
		Use:   "retry RUN --reason WHY",
		Short: "take up a run that is Held, or waits for its next attempt",
		Long: `Take a run up again after what kept it was mended. One that waits for its next
attempt goes at once. A Held one goes on where it stopped: at step 1, with every
check asked afresh, or, when its Node is isolated already, at step 3. When its
attempts are used up it has one more.

With --wait the exit status is 0 when the run is done, 1 when it is Held again, 3
when it was aborted by a gate, 6 after --timeout.`,
		Args: wants("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.retry(cmd.Context(), args[0], reason, w) },
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	w.flags(cmd)
	return cmd
}

func (c *cli) retry(ctx context.Context, run, reason string, w waiting) error {
	if err := needReason(reason, "fencectl retry "+run); err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return err
	}
	rep, err := c.client().Do(ctx, api.Order{Verb: api.Retry, Cluster: c.cluster, Run: run, Reason: reason})
	if err != nil {
		return failed("retry "+run, err)
	}
	return c.accepted(ctx, w, rep, &goal{fromHeld: true})
}
