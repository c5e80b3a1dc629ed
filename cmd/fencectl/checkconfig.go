package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

func newCheckConfigCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "check-config [CHECK]",
		Short: "show what each check covers on the live clusters, and its likely mistakes",
		Long: `Ask the running fenced what each check of the clusters and of policies.d covers. It
reports checks that cover nothing or overlap, percentages that round to 0, and rules
that can never apply. It changes nothing. To check only the files, without a running
fenced, use fenced -t.

The exit status is 2 if a check or one of its rules has no effect, else 0.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(errors.New("check-config takes one CHECK, or none"), "fencectl check-config NAMESPACE/NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.checkConfig(cmd.Context(), strings.Join(args, ""))
		},
	}
}

func (c *cli) checkConfig(ctx context.Context, check string) error {
	rep, err := c.client().Coverage(ctx, c.cluster)
	if err == nil && check != "" {
		err = only(&rep, check)
	}
	if err != nil {
		return requestError("check the configuration (fenced -t checks the files alone)", err)
	}
	if err := c.print(rep.Body, func() error { return c.printCoverage(rep.Value) }); err != nil {
		return err
	}
	if rep.Value.Warnings() > 0 {
		return &exitError{code: exitDegraded}
	}
	return nil
}

// only leaves one check in an answer, "NAMESPACE/NAME" or "NAME".
func only(rep *api.Reply[api.Coverage], check string) (err error) {
	found := false
	for i := range rep.Value.Clusters {
		cl := &rep.Value.Clusters[i]
		cl.Checks = slices.DeleteFunc(cl.Checks, func(k api.CheckCoverage) bool {
			return check != k.Name && check != k.Namespace+"/"+k.Name
		})
		found = found || len(cl.Checks) > 0
	}
	if !found {
		return &exitError{code: exitFailure, err: fmt.Errorf("no check is called %s", check), hint: []string{"fencectl check-config lists them"}}
	}
	rep.Body, err = json.Marshal(rep.Value)
	rep.Body = append(rep.Body, '\n')
	return err
}

func (c *cli) printCoverage(v api.Coverage) error {
	p := c.painter(c.out)
	t := newTable("CLUSTER", "CHECK", "STATE", "TARGETS", "LIMIT", "SOURCE")
	found := newTable("CHECK", "FINDING", "MESSAGE")
	for _, cl := range v.Clusters {
		if cl.Problem != "" {
			found.add(cl.Cluster, cell{text: "NotReadable", color: red}, cl.Problem)
		}
		for _, k := range cl.Checks {
			name := checkName(k.Kind, k.Namespace, k.Name)
			t.add(cl.Cluster, name, k.State, fmt.Sprint(k.Targets), fmt.Sprintf("%s = %d", k.Limit, k.MaxUnhealthy), k.Source)
			for _, f := range k.Findings {
				mark := cell{text: f.Code}
				if f.Warning {
					mark.color = yellow
				}
				found.add(name, mark, f.Message)
			}
			for _, o := range k.Overlaps {
				found.add(name, "Overlap", fmt.Sprintf("%d of its targets are covered by %s, too; the more restrictive check wins", o.Targets, o.Check))
			}
		}
		t.addMore(cl.Cluster, cl.ChecksMore)
	}
	if err := t.write(c.out, p, "CHECKS"); err != nil {
		return err
	}
	return found.write(c.out, p, "FINDINGS")
}

// checkName is a check as people write it.
func checkName(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}
