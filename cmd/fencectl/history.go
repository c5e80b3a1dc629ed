package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	daysVar(cmd.Flags(), &since, "since", "only runs that started in this last time, like 7d or 24h; 0 means all")
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
		if len(rep.Value.Runs) == 0 {
			_, err := fmt.Fprintln(c.out, "no run is on record"+sinceText(from))
			return err
		}
		return runsTable(rep.Value, now).write(c.out, c.painter(c.out), "")
	})
}

// sinceText says from which time on runs are listed; "" if all are.
func sinceText(from time.Time) string {
	if from.IsZero() {
		return ""
	}
	return " since " + clock(from)
}

// runsTable lists runs with the time at which each began: people compare these with other logs.
func runsTable(tl api.Timeline, now time.Time) *table {
	t := newTable("STARTED", "AGE", "RUN", "CLUSTER", "NODE", "RESULT", "TOOK", "REASON", "BY")
	for _, r := range tl.Runs {
		end := r.Ended
		if end.IsZero() {
			end = now
		}
		by := r.Actor
		if by == "" {
			by = "fenced"
		}
		t.add(clock(r.Started), span(now.Sub(r.Started)), r.ID, r.Cluster, cmp.Or(r.Node, r.Machine), cell{text: r.Result, color: resultColor(r.Result)},
			span(end.Sub(r.Started)), orDash(r.Reason), by)
	}
	return t
}
