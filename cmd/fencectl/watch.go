package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/wire"
)

// watchInterval is how often -w looks when nothing happens.
const watchInterval = 2 * time.Second

// watchFlag is -w of a verb that shows something.
type watchFlag struct{ watch bool }

func (w *watchFlag) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.watch, "watch", "w", false, "show it again whenever something happens")
}

// run shows once, or again and again. It ends with the exit status of what it showed last.
func (w *watchFlag) run(ctx context.Context, c *cli, show func(context.Context) error) error {
	if !w.watch {
		return show(ctx)
	}
	wake := changes(ctx, c.client(), func(wire.Event) bool { return true })
	for {
		if c.isTable() && isTerminal(c.out) {
			fmt.Fprint(c.out, "\x1b[H\x1b[2J")
		}
		last := show(context.WithoutCancel(ctx))
		if exit, ok := errors.AsType[*exitError](last); last != nil && (!ok || exit.code != exitDegraded) {
			return last
		}
		if !await(ctx, wake, watchInterval) {
			return last
		}
	}
}

func newEventsCommand(c *cli) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [--follow]",
		Short: "list what happened lately, or follow what happens",
		Long: `List the events that the daemon keeps in memory, oldest first: steps of runs, orders,
refusals, failures. With --follow the command goes on and prints each event as it
happens. With -o json each event is one line. The audit log has all of the past.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.events(cmd.Context(), follow) },
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on, and print each event as it happens")
	return cmd
}

func (c *cli) events(ctx context.Context, follow bool) error {
	list := c.client().KeptEvents(ctx)
	if follow {
		list = c.client().Events(ctx, 0)
	}
	for e, err := range list {
		if ctx.Err() != nil { // interrupted, which is how --follow ends
			return nil
		}
		if err != nil {
			return requestError("read the events", err)
		}
		if c.cluster != "" && e.Cluster != c.cluster {
			continue
		}
		if c.output == "yaml" {
			fmt.Fprintln(c.out, "---")
		}
		if err := c.printValue(e, func() error { return c.printEvent(e) }); err != nil {
			return err
		}
	}
	return nil
}

// printEvent prints an event as one line, with no part that is empty.
func (c *cli) printEvent(e wire.Event) error {
	line := clock(e.At) + "  " + e.Type
	for _, part := range []string{e.Cluster, e.Node, e.Machine, e.Run, e.Step, e.Reason} {
		if part != "" {
			line += "  " + part
		}
	}
	_, err := fmt.Fprintln(c.out, escapeControl(line)+note(e.Message))
	return err
}
