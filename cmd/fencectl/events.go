package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// eventsOptions are the command line of events.
type eventsOptions struct {
	follow bool
	resume string // the file of the place
	exec   string // the program that takes each event
}

func newEventsCommand(c *cli) *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events [--follow] [--resume FILE [--exec PROGRAM]]",
		Short: "list what happened lately, or follow what happens",
		Long: `List the events that the daemon keeps in memory, oldest first: steps of runs, orders,
refusals, failures. With --follow the command goes on and prints each event as it
happens. With -o json each event is one line. The audit log has all of the past.

With --resume the command begins after the last event that it delivered before, and
keeps that place in FILE. With --follow it then connects again by itself when fenced
restarts or ssh breaks. Each event that fenced still keeps is delivered at least once.
fenced keeps the newest 2048, and forgets them when it stops: the event Missed says
that some are lost, and the event Restarted that some may be.

With --exec each event is given to PROGRAM, which is run with the event as JSON on its
standard input, and with its parts in FENCED_EVENT, FENCED_NODE and others, as in the
journal. Exit status 0 takes the event. With any other status, or after two minutes,
PROGRAM is run again, at first after a second, at last every minute.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.events(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "go on, and print each event as it happens")
	flags.StringVar(&o.resume, "resume", "", "begin after the place in `FILE`, and keep the place there")
	flags.StringVar(&o.exec, "exec", "", "give each event to `PROGRAM` in place of printing it")
	must(cmd.MarkFlagFilename("resume"))
	must(cmd.MarkFlagFilename("exec"))
	return cmd
}

func (c *cli) events(ctx context.Context, o eventsOptions) error {
	if err := c.refuseUnknownCluster(ctx, "read the events"); err != nil {
		return err
	}
	if o.resume == "" {
		if o.exec != "" {
			return usageError(errors.New("--exec needs --resume: an event that was not taken is delivered again"), "fencectl events --follow --resume FILE --exec PROGRAM")
		}
		return c.printEvents(ctx, o.follow)
	}
	f := follower{c: c, o: o}
	if o.exec != "" {
		program, err := exec.LookPath(o.exec)
		if err != nil {
			return &exitError{code: exitFailure, err: fmt.Errorf("find the program of --exec: %w", err)}
		}
		f.o.exec = program
	}
	var err error
	if f.place, err = readPlace(o.resume); err != nil {
		return err
	}
	return f.run(ctx)
}

// printEvents prints the events that the daemon keeps and, with follow, each new one until ctx is done.
func (c *cli) printEvents(ctx context.Context, follow bool) error {
	for e, err := range c.client().EventsAfter(ctx, "", 0, follow) {
		if ctx.Err() != nil { // interrupted, which is how --follow ends
			return nil
		}
		if err != nil {
			return requestError("read the events", err)
		}
		if !c.isAbout(e) {
			continue
		}
		if err := c.printOneEvent(e); err != nil {
			return err
		}
	}
	return nil
}

// isAbout says whether an event concerns the cluster of --cluster, as one without a cluster does: a pause of all, an audit log that cannot
// be written.
func (c *cli) isAbout(e wire.Event) bool {
	return c.cluster == "" || e.Cluster == "" || e.Cluster == c.cluster
}

func (c *cli) printOneEvent(e wire.Event) error {
	if c.output == "yaml" {
		fmt.Fprintln(c.out, "---")
	}
	return c.printValue(e, func() error { return c.printEvent(e) })
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

// refuseUnknownCluster refuses a --cluster that fenced does not serve, for a verb that would only wait in vain for something of it. If
// fenced does not answer, the verb says so.
func (c *cli) refuseUnknownCluster(ctx context.Context, what string) error {
	if c.cluster == "" {
		return nil
	}
	st, err := c.client().Status(ctx)
	if err != nil || slices.ContainsFunc(st.Value.Clusters, func(one wire.ClusterStatus) bool { return one.Name == c.cluster }) {
		return nil
	}
	return requestError(what, api.NotFound(string(reason.NoSuchCluster), fmt.Sprintf("no cluster %q is configured", c.cluster), "fencectl status lists the clusters"))
}
