package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

// statusInterval is how often `status -w` looks when nothing happens.
const statusInterval = 2 * time.Second

func newStatusCommand(c *cli) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show whether fenced is armed, which targets are not healthy, and the open runs",
		Long: `Show whether fenced is armed, which targets are not healthy, and the open runs.

The exit status is 2 if fenced is degraded: a cluster is not armed, it or a cluster is
paused, a cluster is not evaluated (stale view, another owner), the audit log cannot
be written, a check is invalid or disabled or its limit allows no remediation (not in
mode respond, where checks start nothing), a host is in quarantine, a deleted Machine
does not disappear, fenced must leave a cluster to another instance because its own
host is to be fenced, a target that a check wants remediated is blocked, a run is
Waiting or Held or had an error in its step, or a BMC is not dependable. With -o wide
it also lists the checks.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return c.watchStatus(cmd.Context())
			}
			return c.status(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again whenever something happens")
	return cmd
}

func (c *cli) status(ctx context.Context) error {
	rep, err := c.client().Status(ctx)
	if err != nil {
		return requestError("read the status", err)
	}
	st := rep.Value
	if err := c.print(rep.Body, func() error { return c.printStatus(st, time.Now()) }); err != nil {
		return err
	}
	if len(st.Degraded()) > 0 {
		return &exitError{code: exitDegraded}
	}
	return nil
}

// watchStatus ends with the exit status of what it showed last.
func (c *cli) watchStatus(ctx context.Context) error {
	wake := changes(ctx, c.client(), func(api.Event) bool { return true })
	for {
		if c.output != "json" && c.output != "yaml" && isTerminal(c.out) {
			fmt.Fprint(c.out, "\x1b[H\x1b[2J")
		}
		last := c.status(context.WithoutCancel(ctx))
		if exit, ok := errors.AsType[*exitError](last); last != nil && (!ok || exit.code != exitDegraded) {
			return last
		}
		if !await(ctx, wake, statusInterval) {
			return last
		}
	}
}
