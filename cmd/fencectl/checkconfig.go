package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/wire"
)

// checkOptions are the command line of check-config.
type checkOptions struct {
	check   string // "NAMESPACE/NAME" or "NAME"; "" is all
	config  string // "" is the default, if it is there
	set     []string
	offline bool
}

func newCheckConfigCommand(c *cli) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check-config [CHECK] [--offline]",
		Short: "check the files, and show what each check covers on the live clusters",
		Long: `Check the configuration files as fenced --check-config does, which prints the lines.
Then ask the running fenced what each check of the clusters and of policies.d covers:
checks that cover nothing or overlap, percentages that round to 0, and rules that can
never apply. It changes nothing. --offline checks only the files, without a running
fenced; with CHECK it asks only about that check.

The files are checked as root if /etc/fenced/fenced.yaml is there, or if --config names
one.

The exit status is 1 if a file has an error, 2 if a check or one of its rules has no
effect, else 0.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) > 0 && o.offline {
				return usageError(errors.New("check-config takes one CHECK, or none, or --offline"), "fencectl check-config NAMESPACE/NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.check = args[0]
			}
			return c.checkConfig(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.config, "config", "", "configuration `FILE` of fenced (default "+config.DefaultFile+")")
	cmd.Flags().StringArrayVar(&o.set, "set", nil, "override one of its keys, KEY=VALUE (repeatable)")
	cmd.Flags().BoolVar(&o.offline, "offline", false, "check only the files")
	return cmd
}

func (c *cli) checkConfig(ctx context.Context, o checkOptions) error {
	var ofFiles error
	if o.check == "" {
		if ofFiles = c.checkConfigFiles(ctx, o); o.offline {
			return ofFiles
		}
	}
	rep, err := c.client().Coverage(ctx, c.cluster)
	if err == nil && o.check != "" {
		err = only(&rep, o.check)
	}
	if err != nil {
		return requestError("check the configuration (--offline checks the files alone)", err)
	}
	if err := c.print(rep.Body, func() error { return c.printCoverage(rep.Value) }); err != nil {
		return err
	}
	if ofFiles == nil && rep.Value.Warnings() > 0 {
		return &exitError{code: exitDegraded}
	}
	return ofFiles
}

// checkConfigFiles has fenced --check-config check the files, and pass on what it prints. Beside JSON all of that goes to stderr.
func (c *cli) checkConfigFiles(ctx context.Context, o checkOptions) error {
	if c.host != "" {
		fmt.Fprintln(c.errs, "the files are not checked, they are on the host of fenced: run fencectl check-config there")
		return nil
	}
	_, absent := os.Stat(config.DefaultFile)
	if named := o.offline || o.config != "" || len(o.set) > 0; !named && (os.Geteuid() != 0 || absent != nil) {
		fmt.Fprintln(c.errs, "the files are not checked: name them with --config, or run it as root where "+config.DefaultFile+" is")
		return nil
	}
	out := c.out
	if !c.isTable() && !o.offline {
		out = c.errs
	}
	return c.runDaemonProgram(ctx, out, append([]string{"--check-config"}, configFlags(o.config, o.set)...)...)
}

// configFlags are the flags of fenced that say which configuration it reads.
func configFlags(file string, set []string) (args []string) {
	if file != "" {
		args = append(args, "--config", file)
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	return args
}

// runDaemonProgram runs fenced, which says itself what is wrong.
func (c *cli) runDaemonProgram(ctx context.Context, out io.Writer, args ...string) error {
	program, err := daemonProgram()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = out, c.errs
	err = cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return &exitError{code: exitFailure}
	}
	if err != nil {
		return fmt.Errorf("run fenced: %w", err)
	}
	return nil
}

// only leaves one check in an answer, "NAMESPACE/NAME" or "NAME".
func only(rep *api.Reply[wire.Coverage], check string) (err error) {
	found := false
	for i := range rep.Value.Clusters {
		cl := &rep.Value.Clusters[i]
		cl.Checks = slices.DeleteFunc(cl.Checks, func(k wire.CheckCoverage) bool {
			return check != k.Name && check != k.Namespace+"/"+k.Name
		})
		found = found || len(cl.Checks) > 0
	}
	if !found {
		return &exitError{code: exitFailure, err: fmt.Errorf("no check is called %s", check), hint: []string{"fencectl check-config lists them"}}
	}
	rep.Body, err = encode(rep.Value)
	return err
}

func (c *cli) printCoverage(v wire.Coverage) error {
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
