package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/wire"
)

// examples are command lines for each verb, by its path: what people copy. Orders have theirs in their
// row. A test runs each through the parser.
var examples = map[string][]string{
	"status":       {"fencectl status", "fencectl status worker-3", "fencectl status -w -o wide"},
	"explain":      {"fencectl explain worker-3", "fencectl explain --machine openshift-machine-api/worker-3-abcde"},
	"nodes":        {"fencectl nodes", "fencectl nodes --cluster prod -o json"},
	"plan":         {"fencectl plan", "fencectl plan -w", "fencectl plan --cluster prod -o json"},
	"timeline":     {"fencectl timeline worker-3", "fencectl timeline mi42k0z1-4f9a1c -o wide", "fencectl timeline mi42k0z1-4f9a1c -o html"},
	"history":      {"fencectl history --since 7d", "fencectl history worker-3", "fencectl history --cluster prod -o json"},
	"report":       {"fencectl report --since 14d", "fencectl report --since 30d --cluster prod -o html"},
	"events":       {"fencectl events", "fencectl events --follow -o json", "fencectl events --follow --resume place --exec ./webhook.sh"},
	"check-config": {"fencectl check-config", "fencectl check-config openshift-machine-api/workers"},
	"fence": {
		`fencectl fence worker-3 --dry-run --reason "is it safe?"`,
		`fencectl fence worker-3 --reason "kernel hangs, ticket 4711" --wait`,
		`fencectl fence worker-3 --off-only --reason "replace the disk" --wait --timeout 10m`,
	},
	"confirm-off": {
		`fencectl confirm-off worker-3 --dry-run --reason "power cable disconnected"`,
		`fencectl confirm-off worker-3 --reason "power cable disconnected by ada" --wait`,
	},
	"arm":          {`fencectl arm --reason "tested"`, `fencectl arm --cluster prod --reason "tested" --yes`},
	"log-level":    {`fencectl log-level debug --reason "the BMC of worker-3 drops sessions"`, `fencectl log-level info --reason "found"`},
	"bmc list":     {"fencectl bmc list", "fencectl bmc list -o wide"},
	"bmc test":     {"fencectl bmc test worker-3", "fencectl bmc test worker-3 --cluster prod -o json"},
	"bmc audit":    {"fencectl bmc audit", "fencectl bmc audit worker-3"},
	"bmc enroll":   {`fencectl bmc enroll worker-3 --reason "new PDU, cabling checked"`, `fencectl bmc enroll --machine openshift-machine-api/worker-3-abcde --reason "new board" --yes`},
	"bmc unfreeze": {`fencectl bmc unfreeze worker-3 --reason "BMC firmware updated"`, `fencectl bmc unfreeze --machine openshift-machine-api/worker-3-abcde --reason "BMC replaced"`},
	"audit show":   {"fencectl audit show --since 24h --node worker-3", "fencectl audit show --head"},
	"audit verify": {
		"fencectl audit verify",
		"fencectl audit verify --head 4711:5a0c5ef7d4f1f2c3b0a19283746556473829100abcdef0123456789abcdef012",
	},
	"export":         {"fencectl export state.ndjson", "fencectl export /root/fenced-state.ndjson"},
	"import":         {"fencectl import state.ndjson", "fencectl import state.ndjson --config /etc/fenced/fenced.yaml"},
	"support-bundle": {"fencectl support-bundle", "fencectl support-bundle --file /root/fenced-4711.tar.gz --cluster prod"},
	"simulate": {
		"fencectl simulate --objects must-gather.yaml",
		"fencectl simulate --objects nodes.yaml --objects checks.yaml --at 2026-01-01T12:00:00Z -o json",
	},
	"init": {
		"fencectl init --kubeconfig admin.conf --bmc worker-1=ipmi://192.0.2.11",
		"fencectl init --kubeconfig workload.conf --management-kubeconfig management.conf --dry-run",
	},
	"ui":      {"fencectl ui", "fencectl ui --cluster prod"},
	"version": {"fencectl version", "fencectl version -o json"},
}

// verbGroups are the headings of the help, with the verbs below each.
var verbGroups = []struct {
	title string
	verbs []string
}{
	{"Look", []string{"status", "nodes", "ui", "explain", "plan", "timeline", "history", "report", "events", "check-config", "bmc", "audit", "simulate"}},
	{"Act", []string{"fence", "unfence", "retry", "confirm-off"}},
	{"Stop, and go on", []string{"pause", "resume", "hold", "release", "abort"}},
	{"Set up", []string{"init", "arm", "disarm", "log-level", "export", "import", "support-bundle", "version"}},
}

// groupVerbs puts each verb below its heading; the rest is cobra's own.
func groupVerbs(root *cobra.Command) {
	for _, g := range verbGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, name := range g.verbs {
			cmd, _, err := root.Find([]string{name})
			must(err)
			cmd.GroupID = g.title
		}
	}
	root.SetHelpCommandGroupID("Set up")
	root.SetCompletionCommandGroupID("Set up")
}

// addExamples gives each verb its examples.
func addExamples(cmd *cobra.Command) {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if of := examples[path]; of != nil {
		cmd.Example = lines(of...)
	}
	for _, verb := range cmd.Commands() {
		addExamples(verb)
	}
}

// lines are examples as help shows them.
func lines(examples ...string) string { return "  " + strings.Join(examples, "\n  ") }

// completionTime bounds how long a shell waits for fenced after the tab key; a login by ssh takes the most of it.
const completionTime = 4 * time.Second

// named picks a list of the names that fenced knows.
type named func(wire.Names) []string

func nodes(n wire.Names) []string { return n.Nodes }

func machines(n wire.Names) []string { return n.Machines }

func clusters(n wire.Names) []string { return n.Clusters }

func checks(n wire.Names) []string { return n.Checks }

func openRuns(n wire.Names) []string { return n.OpenRuns }

func allRuns(n wire.Names) []string { return n.Runs }

// argumentNames are the names that a verb takes, by the word for it in the usage line.
var argumentNames = map[string][]named{
	"NODE": {nodes}, "NODE|--machine": {nodes}, "NODE|RUN|--machine": {nodes, openRuns}, "RUN|NODE|--machine": {openRuns, nodes}, "CHECK": {checks},
}

// argumentOf returns the names that a verb takes; nil if it takes none that fenced knows.
func argumentOf(cmd *cobra.Command) []named {
	if cmd.Name() == "timeline" { // an ended run has one, too
		return []named{nodes, allRuns}
	}
	words := append(strings.Fields(cmd.Use), "", "")
	return argumentNames[strings.Trim(words[1], "[]")]
}

// addCompletions makes a shell complete fixed words, and names from the daemon. Without an answer of
// the daemon it completes nothing.
func addCompletions(c *cli, cmd *cobra.Command) {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if of := argumentOf(cmd); of != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.complete(cmd.Context(), of, typed)
		}
	} else if cmd.Runnable() && len(cmd.ValidArgs) == 0 && path != "import" && path != "export" {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for flag, of := range map[string][]named{"cluster": {clusters}, "machine": {machines}, "node": {nodes}} {
		if cmd.Flags().Lookup(flag) != nil || cmd.PersistentFlags().Lookup(flag) != nil {
			must(cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				return c.complete(cmd.Context(), of, typed)
			}))
		}
	}
	if cmd.PersistentFlags().Lookup("host") != nil {
		must(cmd.RegisterFlagCompletionFunc("host", cobra.FixedCompletions([]string{"ssh://"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)))
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
func (c *cli) complete(ctx context.Context, of []named, typed string) ([]string, cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background()
	}
	c.quiet = true // who presses the tab key wants no question of ssh
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	rep, err := c.client().Names(ctx, c.cluster, typed)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, list := range of {
		for _, name := range list(rep.Value) {
			if strings.HasPrefix(name, typed) {
				names = append(names, escapeControl(name))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
