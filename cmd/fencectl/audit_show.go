package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
)

func newAuditShowCommand(c *cli, o *auditOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "list the entries of the audit log, oldest first",
		Long: `List the entries of the audit log, oldest first, and verify them while reading.
-o json prints the lines of the file, with \uXXXX in place of control characters.
With --head it prints only SEQ:HASH of the last entry: store it on another host for
fencectl audit verify.`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error { return c.auditShow(o, time.Now()) },
	}
	flags := cmd.Flags()
	daysVar(flags, &o.since, "since", "only entries of this last time, like 7d or 24h; 0 means all")
	flags.StringVar(&o.node, "node", "", "only entries about this node")
	flags.BoolVar(&o.head, "head", false, "print only SEQ:HASH of the last entry")
	return cmd
}

func (c *cli) auditShow(o *auditOptions, now time.Time) error {
	if o.since < 0 {
		return usageError(errors.New("--since is a time back from now"), "fencectl audit show --since 24h")
	}
	path, err := o.path()
	if err != nil {
		return err
	}
	if c.isTable() && !o.head {
		fmt.Fprintf(c.out, "%6s  %-25s  %-8s  %s\n", "SEQ", "TIME", "TYPE", "CLUSTER, NODE, RUN, STEP, ACTION OR REASON, AND MORE")
	}
	s, err := audit.Walk(path, func(l audit.Line) error {
		e := l.Entry
		if o.head || o.node != "" && e.Node != o.node || c.cluster != "" && e.Cluster != c.cluster || o.since > 0 && e.At.Before(now.Add(-o.since)) {
			return nil
		}
		return c.printEntry(l)
	})
	if err != nil {
		return auditFailed("read the audit log", err)
	}
	if o.head {
		_, err = fmt.Fprintln(c.out, s.Head)
	}
	return err
}

// printEntry prints an entry as soon as it is read: a log may be long.
func (c *cli) printEntry(l audit.Line) error {
	switch c.output {
	case "json":
		_, err := fmt.Fprintf(c.out, "%s\n", api.EscapeJSON(l.Raw))
		return err
	case "yaml":
		text, err := toYAML(l.Raw)
		if err == nil {
			_, err = fmt.Fprintf(c.out, "---\n%s", text)
		}
		return err
	}
	e := l.Entry
	var b strings.Builder
	fmt.Fprintf(&b, "%6d  %-25s  %-8s", e.Seq, e.At.Local().Format(time.RFC3339), e.Type)
	for _, word := range []string{e.Cluster, e.Node, e.Run, e.Step, e.Action, e.Reason} {
		if word != "" {
			fmt.Fprintf(&b, "  %s", word)
		}
	}
	if e.Actor != "" && !strings.HasPrefix(e.Message, e.Actor) {
		fmt.Fprintf(&b, "  by %s", e.Actor)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, "  %s", e.Message)
	}
	if e.Origin != nil {
		fmt.Fprintf(&b, "  fenced %s on %s, store %s", e.Origin.Version, e.Origin.Host, e.Origin.Store)
	}
	_, err := fmt.Fprintln(c.out, escapeControl(b.String()))
	return err
}

// printValue prints an answer that the program made itself.
func (c *cli) printValue(v any, table func() error) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return c.print(append(body, '\n'), table)
}
