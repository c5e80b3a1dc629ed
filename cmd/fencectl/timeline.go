package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/page"
	"github.com/fenced/fenced/internal/wire"
)

func newTimelineCommand(c *cli) *cobra.Command {
	var a about
	var w watchFlag
	cmd := &cobra.Command{
		Use:   "timeline NODE|RUN|--machine NAMESPACE/NAME",
		Short: "show the runs of a node, or one run, step by step",
		Long: `Show the runs of a node, or one run, step by step, with what forbids a remediation
now, the last error of an open run, and NOTES: the orders of people, the refusals and
the failures. The daemon keeps the newest notes of each node; the audit log has all.
With -o svg the runs are a picture, with -o html one file to send or print.`,
		Args: a.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), c, func(ctx context.Context) error { return c.timeline(ctx, a.name(args)) })
		},
	}
	a.flags(cmd)
	w.flags(cmd)
	return cmd
}

func (c *cli) timeline(ctx context.Context, name string) error {
	rep, err := c.client().NodeTimeline(ctx, c.cluster, name)
	if err != nil {
		return requestError("read the timeline of "+name, err)
	}
	switch c.output {
	case "svg":
		return writeSVG(c.out, rep.Value.Runs, time.Now())
	case "html":
		var log *page.Audit
		if len(rep.Value.Runs) == 1 {
			log = page.ReadAudit(ctx, c.client(), rep.Value.Runs[0])
		}
		return page.WriteTimeline(c.out, name, rep.Value, log, time.Now())
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
	}, runIDs(rep.Value)...)
}

// runIDs names the runs of a timeline, for -o name.
func runIDs(tl wire.Timeline) (names []string) {
	for i := range tl.Runs {
		names = append(names, tl.Runs[i].ID)
	}
	return names
}

func (c *cli) printRun(r wire.RunRecord, now time.Time) error {
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
	reason := ""
	if r.Reason != "" {
		reason = " (" + escapeControl(r.Reason) + ")"
	}
	result := p.paint(resultColor(r.Result), escapeControl(r.Result))
	fmt.Fprintf(c.out, "  result: %s%s, started %s, took %s%s\n", result, reason, c.when(r.Started, now), span(cmp.Or(r.Ended, now).Sub(r.Started)), note(r.Note))
	if e := r.LastError; e != nil {
		fmt.Fprintf(c.out, "  %s %s ago: %s\n", p.paint(yellow, "last error:"), age(e.At, now), escapeControl(e.Text()))
	}
	t := newTable("  STEP", "ATTEMPT", "STARTED", "TOOK", "NOTE")
	for _, s := range r.Steps {
		t.add(fmt.Sprintf("  %d/6 %s", wire.StepNumber(s.Step), s.Step), s.Attempt, c.when(s.Started, now), span(cmp.Or(s.Ended, now).Sub(s.Started)), courseOf(s))
	}
	return t.write(c.out, p, "")
}

// courseOf is why a step was left, if its goal was not reached, and what was done in it.
func courseOf(s wire.StepRecord) string {
	all := slices.Clone(s.Course)
	if s.Note != "" {
		all = append([]string{s.Note}, all...)
	}
	return strings.Join(all, "; ")
}

func resultColor(result string) color {
	switch result {
	case wire.ResultDone, wire.ResultReprovisioned:
		return green
	case wire.ResultHeld:
		return red
	}
	return yellow
}

// printNotes prints what forbids the remediation now, and what happened beside the steps.
func (c *cli) printNotes(tl wire.Timeline, now time.Time) error {
	p := c.painter(c.out)
	for _, b := range tl.Blocked {
		who := "the remediation by " + b.Check
		if b.Run != "" {
			who = "run " + b.Run
		}
		fmt.Fprintf(c.out, "\n%s %s: %s: %s\n", p.paint(red, "blocked:"), escapeControl(who), escapeControl(blockedText(b, now)), escapeControl(b.Message))
	}
	t := newTable("AT", "TYPE", "RUN", "REASON", "MESSAGE")
	for _, n := range tl.Notes {
		message := n.Message
		if n.Count > 1 {
			message += fmt.Sprintf(" (%d times, last %s)", n.Count, c.when(n.Last, now))
		}
		t.add(c.when(n.At, now), n.Type, orDash(n.Run), orDash(n.Reason), message)
	}
	return t.write(c.out, p, "NOTES")
}

func newHistoryCommand(c *cli) *cobra.Command {
	var since time.Duration
	var w watchFlag
	cmd := &cobra.Command{
		Use:   "history [NODE]",
		Short: "list runs, oldest first",
		Long: `List the runs, oldest first: all, or those of NODE, which may be NAMESPACE/NAME of a
Machine. fencectl timeline shows the steps of a run.`,
		Args: atMostOneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), c, func(ctx context.Context) error { return c.history(ctx, strings.Join(args, ""), since) })
		},
	}
	w.flags(cmd)
	cmd.Flags().Var(days{&since}, "since", "only runs that started in this last time, like 7d or 24h; 0 means all")
	return cmd
}

func (c *cli) history(ctx context.Context, of string, since time.Duration) error {
	if since < 0 {
		return usageError(errors.New("--since is a time back from now"), "fencectl history --since 24h")
	}
	now := time.Now()
	var from time.Time
	if since > 0 {
		from = now.Add(-since)
	}
	rep, err := c.readHistory(ctx, of, from)
	if err != nil {
		return requestError("read the history", err)
	}
	return c.print(rep.Body, func() error {
		if len(rep.Value.Runs) == 0 {
			text := "no run is on record"
			if since > 0 {
				text += " since " + clock(from)
			}
			_, err := fmt.Fprintln(c.out, text)
			return err
		}
		return runsTable(rep.Value, now).write(c.out, c.painter(c.out), "")
	}, runIDs(rep.Value)...)
}

// readHistory asks for all runs since a time, or for those of one target.
func (c *cli) readHistory(ctx context.Context, of string, from time.Time) (api.Reply[wire.Timeline], error) {
	if of == "" {
		return c.client().Runs(ctx, c.cluster, from)
	}
	rep, err := c.client().NodeTimeline(ctx, c.cluster, of)
	if err != nil {
		return rep, err
	}
	runs := slices.DeleteFunc(rep.Value.Runs, func(r wire.RunRecord) bool { return r.Started.Before(from) })
	rep.Value = wire.Timeline{Runs: append([]wire.RunRecord{}, runs...)} // as the list of all runs has them
	rep.Body, err = encode(rep.Value)
	return rep, err
}

// runsTable lists runs with the time at which each began: people compare these with other logs.
func runsTable(tl wire.Timeline, now time.Time) *table {
	t := newTable("STARTED", "AGE", "RUN", "CLUSTER", "NODE", "RESULT", "TOOK", "REASON", "ACTOR")
	t.spare = []string{"AGE", "TOOK"}
	for _, r := range tl.Runs {
		t.add(clock(r.Started), span(now.Sub(r.Started)), r.ID, r.Cluster, cmp.Or(r.Node, r.Machine), cell{text: r.Result, color: resultColor(r.Result)},
			span(cmp.Or(r.Ended, now).Sub(r.Started)), orDash(r.Reason), cmp.Or(r.Actor, "fenced"))
	}
	return t
}
