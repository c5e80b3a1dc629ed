package main

import (
	"context"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

func newHoldCommand(c *cli) *cobra.Command {
	var reason string
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "hold NODE --reason WHY [--for 4h]",
		Short: "keep one node from being fenced",
		Long: `Keep one node from being fenced, by checks and by people, until release or for the
time of --for. A run on it whose Node is not isolated yet powers its host on again
and ends Aborted; one whose Node is isolated completes, so that no host stays off.

It binds at once, also when the state cannot be saved: then it says so, and tries
again. A hold that stands is never shortened; release it first.`,
		Args: wants("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.hold(cmd.Context(), args[0], reason, length, cmd.Flags().Changed("for"))
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	cmd.Flags().DurationVar(&length, "for", 0, "end by itself after this time")
	return cmd
}

func (c *cli) hold(ctx context.Context, node, reason string, length time.Duration, ends bool) error {
	line := "fencectl hold " + node
	if err := needReason(reason, line); err != nil {
		return err
	}
	if err := checkFor(length, ends, line); err != nil {
		return err
	}
	return c.give(ctx, api.Order{Verb: api.Hold, Cluster: c.cluster, Node: node, Reason: reason, For: api.Span(length)}, "hold "+node)
}

// checkFor: a slip like --for 0 must not become a stop without an end.
func checkFor(length time.Duration, given bool, line string) error {
	if given && length <= 0 {
		return usageError(errors.New("--for is a time, like 4h or 30m"), line+" --for 4h")
	}
	return nil
}

// give gives an order that has nothing to wait for.
func (c *cli) give(ctx context.Context, o api.Order, what string) error {
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return failed(what, err)
	}
	return c.print(rep.Body, func() error { return c.printResult(rep.Value) })
}
