package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/fenced/fenced/internal/policy"
)

func printReportJSON(w io.Writer, r *policy.Report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// printReport prints the same content for people: one block per check.
func printReport(w io.Writer, r *policy.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "judged at %s\n", r.At.Format(time.RFC3339))
	if len(r.Checks) == 0 {
		fmt.Fprintln(&b, "\nno health check among the objects")
	}
	for i := range r.Checks {
		printCheck(&b, &r.Checks[i])
	}
	if len(r.Errors) > 0 {
		fmt.Fprintln(&b, "\nnot judged:")
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "  %s: %s\n", printable(e.Object), printable(e.Message))
	}
	_, err := b.WriteTo(w)
	return err
}

func printCheck(b *bytes.Buffer, c *policy.CheckReport) {
	name := c.Name
	if c.Namespace != "" {
		name = c.Namespace + "/" + c.Name
	}
	fmt.Fprintf(b, "\n%s %s (%s): %s\n", printable(c.Kind), printable(name), printable(c.APIVersion), c.State)
	if c.Message != "" {
		fmt.Fprintf(b, "  %s\n", printable(c.Message))
	}
	if c.State != policy.StateActive {
		return
	}
	fmt.Fprintf(b, "  healthy %d of %d, limit %s (%d), remediation %s, %d more allowed%s\n",
		c.Healthy, c.Expected, printable(c.Limit), c.MaxUnhealthy, openOrClosed(c.Allowed), c.RemediationsAllowed, again(c.RecheckAfterSeconds))
	if len(c.Targets) == 0 {
		return
	}
	// tabwriter writes to a buffer here and cannot fail.
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  MACHINE\tNODE\tVERDICT\tREASON\tACTION\tREFUSED BY\tLOOK AGAIN\tMESSAGE")
	for i := range c.Targets {
		fmt.Fprintln(t, "  "+targetRow(&c.Targets[i]))
	}
	_ = t.Flush()
}

func targetRow(t *policy.TargetReport) string {
	refusals := make([]string, len(t.Refusals))
	for i, r := range t.Refusals {
		refusals[i] = string(r)
	}
	again := ""
	if t.RecheckAfterSeconds > 0 {
		again = (time.Duration(t.RecheckAfterSeconds) * time.Second).String()
	}
	row := []string{t.Machine, t.Node, string(t.Verdict), string(t.Reason), string(t.Action), strings.Join(refusals, ","), again, t.Message}
	for i, cell := range row {
		row[i] = dash(printable(cell))
	}
	return strings.Join(row, "\t")
}

func openOrClosed(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "stopped"
}

func again(seconds int) string {
	if seconds == 0 {
		return ""
	}
	return fmt.Sprintf(", look again in %s", time.Duration(seconds)*time.Second)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printable keeps what came from a file from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
