package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

func newTimelineCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "timeline NODE|RUN",
		Short: "show the runs of a node, or one run, step by step",
		Long: `Show the runs of a node, or one run, step by step, with what forbids a remediation
now, the last error of an open run, and NOTES: the orders of people, the refusals and
the failures. The daemon keeps the newest notes of each node; the audit log has all.`,
		Args: exactArgs("NODE|RUN"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.timeline(cmd.Context(), args[0]) },
	}
}

// timeline takes the name for a run's and, when there is no such run, for a
// node's.
func (c *cli) timeline(ctx context.Context, name string) error {
	rep, err := c.runs(ctx, name)
	if err != nil {
		return requestError("read the timeline of "+name, err)
	}
	return c.print(rep.Body, func() error {
		if len(rep.Value.Runs) == 0 {
			fmt.Fprintf(c.out, "no run of %s\n", escapeControl(name))
		}
		for i, r := range rep.Value.Runs {
			if i > 0 {
				fmt.Fprintln(c.out)
			}
			if err := c.printRun(r, time.Now()); err != nil {
				return err
			}
		}
		return c.printNotes(rep.Value, time.Now())
	})
}

// runs asks for the run of a name, or for those of a node.
func (c *cli) runs(ctx context.Context, name string) (api.Reply[api.Timeline], error) {
	if api.CheckRun(name) == nil {
		rep, err := c.client().Run(ctx, name)
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Status != http.StatusNotFound {
			return rep, err
		}
	}
	return c.client().NodeTimeline(ctx, c.cluster, name)
}

func (c *cli) printRun(r api.RunRecord, now time.Time) error {
	p := c.painter(c.out)
	fmt.Fprintf(c.out, "run %s: %s in %s", escapeControl(r.ID), escapeControl(cmp.Or(r.Node, r.Machine)), escapeControl(r.Cluster))
	if r.Machine != "" {
		fmt.Fprintf(c.out, " (%s)", escapeControl(r.Machine))
	}
	fmt.Fprintf(c.out, "\n  trigger: %s\n", escapeControl(r.Trigger))
	if r.Actor != "" {
		fmt.Fprintf(c.out, "  ordered by %s\n", escapeControl(r.Actor))
	}
	if r.ConfirmedBy != "" {
		fmt.Fprintf(c.out, "  %s by %s%s\n", p.paint(yellow, "confirmed off"), escapeControl(r.ConfirmedBy), note(r.ConfirmedReason))
	}
	if r.Proof != "" {
		fmt.Fprintf(c.out, "  proof of off: %s\n", escapeControl(r.Proof))
	}
	end := r.Ended
	if end.IsZero() {
		end = now
	}
	reason := ""
	if r.Reason != "" {
		reason = " (" + escapeControl(r.Reason) + ")"
	}
	result := p.paint(resultColor(r.Result), escapeControl(r.Result))
	fmt.Fprintf(c.out, "  result: %s%s, started %s, took %s%s\n", result, reason, clock(r.Started), span(end.Sub(r.Started)), note(r.Note))
	if e := r.LastError; e != nil {
		fmt.Fprintf(c.out, "  %s %s ago: %s\n", p.paint(yellow, "last error:"), age(e.At, now), escapeControl(e.Text()))
	}
	t := newTable("  STEP", "ATTEMPT", "STARTED", "TOOK", "NOTE")
	for _, s := range r.Steps {
		end := s.Ended
		if end.IsZero() {
			end = now
		}
		t.add(fmt.Sprintf("  %d/6 %s", api.StepNumber(s.Step), s.Step), s.Attempt, clock(s.Started), span(end.Sub(s.Started)), s.Note)
	}
	return t.write(c.out, p, "")
}

func resultColor(result string) color {
	switch result {
	case api.ResultDone, api.ResultReprovisioned:
		return green
	case api.ResultHeld:
		return red
	}
	return yellow
}
