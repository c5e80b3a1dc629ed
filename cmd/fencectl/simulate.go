package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

const simulateLong = `Evaluate saved Kubernetes objects with the policy of the daemon. This needs neither a
cluster nor the daemon:

  kubectl get mhc,machines.machine.openshift.io,nodes -A -o yaml > cluster.yaml
  fencectl simulate --objects cluster.yaml

Add leases and baremetalhosts where the cluster has them: they show more of what forbids
an action. What only the daemon knows, such as open runs, limits, hosts.d and pins,
forbids nothing here.

Without --cluster, policies from files for other clusters are evaluated too.

The exit status is 0 if nothing would be done, 2 if something would be done, and 1
if the input could not be read at all.`

// simulateOptions are the command line of simulate.
type simulateOptions struct {
	objects []string
	at      string
}

func newSimulateCommand(c *cli) *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate --objects FILE",
		Short: "evaluate saved Kubernetes objects, offline",
		Long:  simulateLong,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("simulate takes no argument %q", args[0]), "fencectl simulate --objects "+args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return c.simulate(o) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.objects, "objects", nil, "file of YAML or JSON objects, - for standard input; may be repeated")
	flags.StringVar(&o.at, "at", "", "the time to evaluate at, RFC 3339 (default: now)")
	return cmd
}

func (c *cli) simulate(o simulateOptions) error {
	at, err := o.check()
	if err != nil {
		return err
	}
	snapshot, err := readAll(o.objects, c.in)
	if err != nil {
		return err
	}
	if c.cluster != "" {
		forCluster(&snapshot, c.cluster)
	}
	report := policy.Decide(snapshot, at)
	body, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if err := c.print(append(body, '\n'), func() error { return c.printReport(&report) }); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if report.Acts() {
		return &exitError{code: exitDegraded}
	}
	return nil
}

// check refuses a wrong command line; it gives the one sampled now.
func (o *simulateOptions) check() (time.Time, error) {
	if len(o.objects) == 0 {
		return time.Time{}, usageError(errors.New("simulate: no objects to evaluate"), "fencectl simulate --objects FILE")
	}
	if o.at == "" {
		return time.Now(), nil
	}
	at, err := time.Parse(time.RFC3339, o.at)
	if err != nil {
		return time.Time{}, usageError(fmt.Errorf("simulate: --at %q is not an RFC 3339 time", o.at), "--at 2026-01-31T12:00:00Z")
	}
	return at, nil
}

// readAll reads every input. What cannot be read is among the report's errors. If that is every input,
// the command fails.
func readAll(names []string, stdin io.Reader) (policy.Snapshot, error) {
	var objects manifest.Objects
	var unreadable []error
	for _, name := range names {
		err := readObjects(&objects, name, stdin)
		if err != nil && !errors.Is(err, manifest.ErrUnreadable) {
			return policy.Snapshot{}, err
		}
		if err != nil {
			unreadable = append(unreadable, err)
		}
	}
	if len(unreadable) == len(names) {
		return policy.Snapshot{}, errors.Join(unreadable...)
	}
	return objects.Snapshot(), nil
}

// forCluster leaves out the policies of files that are meant for other clusters.
func forCluster(s *policy.Snapshot, cluster string) {
	s.Checks = slices.DeleteFunc(s.Checks, func(c policy.Check) bool { return !c.AppliesTo(cluster) })
	s.Budgets = slices.DeleteFunc(s.Budgets, func(b policy.DisruptionBudget) bool {
		return len(b.Clusters) > 0 && !slices.Contains(b.Clusters, cluster)
	})
}

func readObjects(objects *manifest.Objects, name string, stdin io.Reader) error {
	if name == "-" {
		return objects.Read("standard input", stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	return errors.Join(objects.Read(name, f), f.Close())
}

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
	budgets := newTable("BUDGET", "STATE", "UNAVAILABLE", "NODES", "MAX UNAVAILABLE", "MESSAGE")
	for _, b := range r.Budgets {
		budgets.add(b.Name, b.State, b.Unavailable, b.Nodes, b.MaxUnavailable, orDash(b.Message))
	}
	if err := budgets.write(c.out, c.painter(c.out), "disruption budgets:"); err != nil {
		return err
	}
	errors := newTable("OBJECT", "MESSAGE")
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
	if zero := r.LimitRoundsToZero(); zero != "" {
		fmt.Fprintf(c.out, "%s %s\n", c.painter(c.out).paint(yellow, "warning:"), escapeControl(zero))
	}
	targets := newTable("MACHINE", "NODE", "VERDICT", "REASON", "ACTION", "REFUSALS", "RECHECK AFTER", "MESSAGE")
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
