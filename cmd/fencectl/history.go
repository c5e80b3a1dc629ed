package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

func newHistoryCommand(c *cli) *cobra.Command {
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "history",
		Short: "list runs, oldest first",
		Args:  exactArgs(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.history(cmd.Context(), since) },
	}
	cmd.Flags().DurationVar(&since, "since", 0, "only runs that started in this last time, like 24h; 0 means all")
	return cmd
}

func (c *cli) history(ctx context.Context, since time.Duration) error {
	if since < 0 {
		return usageError(errors.New("--since is a time back from now"), "fencectl history --since 24h")
	}
	now := time.Now()
	var from time.Time
	if since > 0 {
		from = now.Add(-since)
	}
	rep, err := c.client().Runs(ctx, c.cluster, from)
	if err != nil {
		return requestError("read the history", err)
	}
	return c.print(rep.Body, func() error {
		return runsTable(rep.Value, now).write(c.out, c.painter(c.out), "")
	})
}

func runsTable(tl api.Timeline, now time.Time) *table {
	t := newTable("STARTED", "RUN", "CLUSTER", "NODE", "RESULT", "TOOK", "REASON", "BY")
	for _, r := range tl.Runs {
		end := r.Ended
		if end.IsZero() {
			end = now
		}
		by := r.Actor
		if by == "" {
			by = "fenced"
		}
		t.add(clock(r.Started), r.ID, r.Cluster, cmp.Or(r.Node, r.Machine), cell{text: r.Result, color: resultColor(r.Result)},
			span(end.Sub(r.Started)), orDash(r.Reason), by)
	}
	return t
}
