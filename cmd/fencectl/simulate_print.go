package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// printReport prints the report for people: one block per check.
func (c *cli) printReport(r *policy.Report) error {
	if _, err := fmt.Fprintf(c.out, "evaluated at %s\n", clock(r.At)); err != nil {
		return err
	}
	if len(r.Checks) == 0 {
		fmt.Fprintln(c.out, "\nno health check among the objects")
	}
	for i := range r.Checks {
		if err := c.printCheck(&r.Checks[i]); err != nil {
			return err
		}
	}
	budgets := newTable("BUDGET", "STATE", "UNAVAILABLE", "OF NODES", "ALLOWED", "MESSAGE")
	for _, b := range r.Budgets {
		budgets.add(b.Name, b.State, b.Unavailable, b.Nodes, b.MaxUnavailable, orDash(b.Message))
	}
	if err := budgets.write(c.out, c.painter(c.out), "disruption budgets:"); err != nil {
		return err
	}
	errors := newTable("OBJECT", "WHY")
	for _, e := range r.Errors {
		errors.add(e.Object, e.Message)
	}
	return errors.write(c.out, c.painter(c.out), "not evaluated:")
}

func (c *cli) printCheck(r *policy.CheckReport) error {
	title := fmt.Sprintf("%s (%s): %s", checkName(r.Kind, r.Namespace, r.Name), r.APIVersion, r.State)
	if r.Message != "" {
		title += ", " + r.Message
	}
	if _, err := fmt.Fprintf(c.out, "\n%s\n", escapeControl(title)); err != nil {
		return err
	}
	if r.State != policy.StateActive {
		return nil
	}
	gate := "stopped"
	if r.Allowed {
		gate = "allowed"
	}
	limit := fmt.Sprint(r.MaxUnhealthy)
	if r.MinUnhealthy > 0 {
		limit = fmt.Sprintf("%d to %d", r.MinUnhealthy, r.MaxUnhealthy)
	}
	_, err := fmt.Fprintf(c.out, "healthy %d of %d, limit %s (%s): remediation %s, room for %d more%s\n", r.Healthy, r.Expected,
		escapeControl(r.Limit), limit, gate, r.RemediationsAllowed, lookAgain(r.RecheckAfterSeconds, ", look again in "))
	if err != nil {
		return err
	}
	targets := newTable("MACHINE", "NODE", "VERDICT", "REASON", "ACTION", "REFUSED BY", "LOOK AGAIN", "MESSAGE")
	for i := range r.Targets {
		t := &r.Targets[i]
		refusals := make([]string, len(t.Refusals))
		for j, reason := range t.Refusals {
			refusals[j] = string(reason)
		}
		targets.add(orDash(t.Machine), orDash(t.Node), verdictCell(t), orDash(string(t.Reason)), t.Action,
			orDash(strings.Join(refusals, ",")), orDash(lookAgain(t.RecheckAfterSeconds, "")), orDash(t.Message))
	}
	return targets.write(c.out, c.painter(c.out), "")
}

func verdictCell(t *policy.TargetReport) cell {
	c := cell{text: string(t.Verdict)}
	switch t.Verdict {
	case policy.Healthy:
		c.color = green
	case policy.Unhealthy:
		c.color = red
	case policy.Pending, policy.Indeterminate:
		c.color = yellow
	}
	return c
}

// lookAgain is empty when no clock runs.
func lookAgain(seconds int, before string) string {
	if seconds == 0 {
		return ""
	}
	return before + (time.Duration(seconds) * time.Second).String()
}
