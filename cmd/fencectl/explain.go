package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/reason"
)

func newExplainCommand(c *cli) *cobra.Command {
	var a about
	cmd := &cobra.Command{
		Use:   "explain NODE|--machine NAMESPACE/NAME",
		Short: "show every gate that must pass before a node is fenced",
		Long: `Show every gate that must pass before a node is fenced, in the order in which fenced
asks them: the present value, the value that is needed, and where that is set. It
changes nothing, and reads no BMC: the gates host and identity show what a probe or
the last BMC health check found. PASS is "not yet" for what was not read yet; fenced
reads that before a run starts. The exit status is 0 whatever the verdict.`,
		Args: a.args,
		RunE: func(cmd *cobra.Command, args []string) error { return c.explain(cmd.Context(), a.name(args)) },
	}
	a.flags(cmd)
	return cmd
}

func (c *cli) explain(ctx context.Context, of string) error {
	rep, err := c.client().Explain(ctx, c.cluster, of)
	if err != nil {
		return requestError("explain "+of, err)
	}
	return c.print(rep.Body, func() error { return c.printExplanation(rep.Value, time.Now()) })
}

func (c *cli) printExplanation(e api.Explanation, now time.Time) error {
	p := c.painter(c.out)
	fmt.Fprintf(c.out, "%s in %s: %s%s\n", escapeControl(cmp.Or(e.Machine, e.Node)), escapeControl(e.Cluster), cmp.Or(escapeControl(e.Verdict), "no check covers it"), note(e.Message))
	if e.Refused != "" {
		fmt.Fprintf(c.out, "%s %s\n", p.paint(yellow, "refused:"), escapeControl(e.Refused)+classNote(e.Class))
	}
	if !e.Earliest.IsZero() {
		fmt.Fprintf(c.out, "earliest: %s (in %s), if nothing else changes\n", clock(e.Earliest), span(e.Earliest.Sub(now)))
	}
	if e.Run != nil {
		fmt.Fprintf(c.out, "run: %s %s%s\n", escapeControl(e.Run.ID), escapeControl(e.Run.Result), note(e.Run.Reason))
	}
	if names := unchecked(e.Gates); len(names) > 0 {
		fmt.Fprintf(c.out, "%s %s\n", p.paint(yellow, "not checked yet:"), strings.Join(names, ", "))
	}
	return c.gateTable(e.Gates, now).write(c.out, p, "GATES")
}

// unchecked names the gates that pass only because nothing has been read for them yet.
func unchecked(gates []reason.Gate) (names []string) {
	for _, g := range gates {
		if g.Unchecked {
			names = append(names, escapeControl(g.Name))
		}
	}
	return names
}

// classNote says what ends a refusal.
func classNote(class string) string {
	switch reason.Class(class) {
	case reason.Transient:
		return " (may pass: fenced tries again by itself)"
	case reason.Mended:
		return " (needs a change: fenced tries again when it sees one)"
	case reason.Person:
		return " (needs a person)"
	}
	return ""
}

func (c *cli) gateTable(gates []reason.Gate, now time.Time) *table {
	t := newTable("GATE", "PASS", "REASON", "VALUE", "THRESHOLD", "SOURCE", "UNTIL")
	for _, g := range gates {
		pass := cell{text: "yes", color: green}
		switch {
		case g.Waived:
			pass = cell{text: "waived", color: yellow}
		case g.Unchecked:
			pass = cell{text: "not yet", color: yellow}
		case !g.Pass:
			pass = cell{text: "no", color: red}
		}
		t.add(g.Name, pass, orDash(string(g.Reason)), orDash(g.Value), orDash(g.Threshold), orDash(g.Source), c.when(g.Until, now))
	}
	return t
}
