package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

// completionTime bounds how long a shell waits for fenced after the tab key.
const completionTime = 2 * time.Second

// named picks a list of the names that fenced knows.
type named func(api.Names) []string

func nodes(n api.Names) []string    { return n.Nodes }
func machines(n api.Names) []string { return n.Machines }
func clusters(n api.Names) []string { return n.Clusters }
func checks(n api.Names) []string   { return n.Checks }
func openRuns(n api.Names) []string { return n.OpenRuns }

// nodesAndRuns are the names that timeline takes.
func nodesAndRuns(n api.Names) []string { return append(n.Nodes, n.Runs...) }

// argumentNames are the names that a verb takes, by its path. Verbs without arguments have no entry.
var argumentNames = map[string]named{
	"explain": nodes, "fence": nodes, "unfence": nodes, "hold": nodes, "release": nodes, "confirm-off": nodes,
	"bmc test": nodes, "bmc audit": nodes, "bmc enroll": nodes, "bmc release": nodes,
	"timeline": nodesAndRuns, "abort": openRuns, "retry": openRuns, "check-config": checks,
}

// addCompletions makes a shell complete fixed words, and names from the daemon. Without an answer of
// the daemon it completes nothing.
func addCompletions(c *cli, cmd *cobra.Command) {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if of := argumentNames[path]; of != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.complete(cmd.Context(), of, typed)
		}
	} else if cmd.Runnable() && len(cmd.ValidArgs) == 0 && path != "import" && path != "export" {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for flag, of := range map[string]named{"cluster": clusters, "machine": machines, "node": nodes} {
		if cmd.Flags().Lookup(flag) != nil || cmd.PersistentFlags().Lookup(flag) != nil {
			must(cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return c.complete(cmd.Context(), of, typed)
			}))
		}
	}
	if cmd.PersistentFlags().Lookup("output") != nil {
		must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp)))
	}
	if cmd.Flags().Lookup("rights") != nil {
		must(cmd.RegisterFlagCompletionFunc("rights", cobra.FixedCompletions(rights, cobra.ShellCompDirectiveNoFileComp)))
		must(cmd.MarkFlagDirname("output-dir"))
	}
	for _, verb := range cmd.Commands() {
		addCompletions(c, verb)
	}
}

// must panics on an error that only a defect of this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// complete asks the daemon for names.
func (c *cli) complete(ctx context.Context, of named, typed string) ([]string, cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	rep, err := c.client().Names(ctx, c.cluster, typed)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, name := range of(rep.Value) {
		if strings.HasPrefix(name, typed) {
			names = append(names, escapeControl(name))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
