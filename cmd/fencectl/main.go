// Command fencectl is how people drive fenced: what it sees, why it does or
// does not fence, and orders to it, over the daemon's unix socket. It needs no
// cluster and no BMC of its own; simulate, version and completion need no
// daemon either. init has the daemon's program look at a cluster.
//
// The exit statuses and the JSON of -o json are a contract with scripts. An
// error is one line on stderr, `fencectl: WHAT`, followed by `hint:` lines.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/remote"
)

// version is set when the program is linked.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, in *os.File, out, errs io.Writer) int {
	c := &cli{in: in, out: out, errs: errs}
	root := newRoot(c)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	c.end()
	c.printRefusal(err)
	return report(errs, c.there(err))
}

// cli is what every verb shares: the streams and the common flags.
type cli struct {
	in   *os.File
	out  io.Writer
	errs io.Writer

	socket  string
	host    string // "" is this one
	cluster string
	output  string
	noColor bool

	connection
}

// verbs are those that do more than send an order; those that only do that are the rows of
// orderVerbs.
var verbs = []func(*cli) *cobra.Command{
	newDialStdioCommand, newStatusCommand, newExplainCommand, newPlanCommand, newTimelineCommand, newHistoryCommand, newReportCommand, newEventsCommand, newCheckConfigCommand,
	newFenceCommand, newConfirmOffCommand, newArmCommand, newNodesCommand, newBMCCommand, newUICommand,
	newAuditCommand, newExportCommand, newImportCommand, newSupportBundleCommand, newLogLevelCommand, newSimulateCommand, newInitCommand, newVersionCommand,
}

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:           "fencectl VERB",
		Version:       version,
		Short:         "control fenced: show, explain and order the fencing of nodes",
		SilenceErrors: true, // report prints them
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // RunE names the unknown verb
		RunE:          noVerb,
	}
	root.SetVersionTemplate("fencectl {{.Version}}\n")
	root.SuggestionsMinimumDistance = 2 // cobra sets it only where it names the unknown verb
	flags := root.PersistentFlags()
	flags.StringVar(&c.socket, "socket", cmp.Or(os.Getenv("FENCED_SOCKET"), api.DefaultSocket), "control socket of fenced, or FENCED_SOCKET")
	flags.StringVar(&c.host, "host", os.Getenv("FENCECTL_HOST"), "ssh://USER@HOST[:PORT] of fenced, or FENCECTL_HOST, when it runs elsewhere")
	flags.StringVar(&c.cluster, "cluster", os.Getenv("FENCED_CLUSTER"), "cluster of the node, or FENCED_CLUSTER, when fenced serves several")
	flags.StringVarP(&c.output, "output", "o", "table", "table, wide, json, yaml or name; wide has whole times and any width")
	flags.BoolVar(&c.noColor, "no-color", false, "no colours, as with NO_COLOR set")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(err, cmd.CommandPath()+" --help")
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if c.cluster != "" {
			if err := api.CheckCluster(c.cluster); err != nil {
				return usageOf(err)
			}
		}
		if err := c.checkHost(cmd); err != nil {
			return err
		}
		return c.checkOutput(cmd)
	}
	for _, verb := range verbs {
		root.AddCommand(verb(c))
	}
	addOrderVerbs(c, root)
	groupVerbs(root)
	addExamples(root)
	addCompletions(c, root)
	root.InitDefaultCompletionCmd()
	knownShells(root)
	wrongArgsAreUsage(root)
	return root
}

// wrongArgsAreUsage makes the errors of cobra's validators usage errors, for this verb and all below
// it.
func wrongArgsAreUsage(cmd *cobra.Command) {
	if valid := cmd.Args; valid != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := valid(cmd, args)
			if _, ok := errors.AsType[*exitError](err); ok || err == nil {
				return err
			}
			return usageError(err, cmd.CommandPath()+" --help")
		}
	}
	for _, verb := range cmd.Commands() {
		wrongArgsAreUsage(verb)
	}
}

// knownShells keeps cobra's completions for the shells of Linux, and refuses any other.
func knownShells(root *cobra.Command) {
	completion, _, err := root.Find([]string{"completion"})
	if err != nil { // cobra has just added it
		panic(err)
	}
	for _, shell := range completion.Commands() {
		if shell.Name() == "powershell" {
			completion.RemoveCommand(shell)
		}
	}
	completion.Args = cobra.ArbitraryArgs // RunE names the unknown shell
	completion.RunE = func(_ *cobra.Command, args []string) error {
		err := errors.New("no shell given")
		if len(args) > 0 {
			err = fmt.Errorf("no completion for %q", args[0])
		}
		return usageError(err, "fencectl completion bash|zsh|fish")
	}
}

func noVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError(errors.New("no verb given"), "fencectl --help")
	}
	hint := []string{"fencectl --help"}
	for _, like := range cmd.SuggestionsFor(args[0]) {
		hint = append(hint, "did you mean: fencectl "+like)
	}
	return usageError(fmt.Errorf("unknown verb %q", args[0]), hint...)
}

// outputs are the forms of -o.
var outputs = []string{"table", "wide", "json", "yaml", "name"}

// unnamed are the verbs that list nothing with a name.
var unnamed = []string{"check-config", "audit", "export", "import", "support-bundle", "log-level", "simulate", "init", "version", "events", "report", "ui", "enroll",
	"arm", "disarm", "pause", "resume", "hold", "release"}

// checkOutput refuses an output form that no verb has.
func (c *cli) checkOutput(cmd *cobra.Command) error {
	words := strings.Fields(cmd.CommandPath())
	none := c.output == "name" && slices.ContainsFunc(words, func(word string) bool { return slices.Contains(unnamed, word) })
	drawn := c.output == "svg" && slices.Contains(words, "timeline") ||
		c.output == "html" && (slices.Contains(words, "timeline") || slices.Contains(words, "report"))
	if (slices.Contains(outputs, c.output) || drawn) && !none {
		return nil
	}
	return usageError(fmt.Errorf("%s has no output form %q", cmd.CommandPath(), c.output), "-o table, -o wide, -o json or -o yaml")
}

// exactArgs makes a verb take exactly the named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return checkArguments(names, args)
		}
		names := slices.Clone(names)
		for i := range names {
			if names[i] == "TARGET" { // one word for what the usage line has in full
				names[i] = "NODE|RUN|NAMESPACE/NAME"
			}
		}
		what := "no argument"
		if len(names) > 0 {
			what = strings.Join(names, " ")
		}
		return usageError(fmt.Errorf("%s takes %s", cmd.Name(), what), strings.Join(append([]string{cmd.CommandPath()}, names...), " "))
	}
}

// atMostOneTarget makes a verb take the name of a Node, a run or a Machine, or nothing.
func atMostOneTarget(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError(fmt.Errorf("%s takes one NODE, or none", cmd.Name()), cmd.CommandPath()+" NODE")
	}
	return checkArguments([]string{"TARGET"}[:len(args)], args)
}

// checkArguments refuses a name that nothing can have, before the daemon is asked.
func checkArguments(names, args []string) error {
	checks := map[string]func(string) error{"NODE": api.CheckNode, "TARGET": func(name string) error {
		if strings.Contains(name, "/") {
			return api.CheckMachine(name)
		}
		return api.CheckTarget(name)
	}}
	for i, name := range names {
		if check := checks[name]; check != nil {
			if err := check(args[i]); err != nil {
				return usageOf(err)
			}
		}
	}
	return nil
}

// usageOf is the usage error, with its hint, for an order that the daemon would refuse.
func usageOf(err error) error {
	exit := usageError(err)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Hint != "" {
		exit.hint = []string{e.Hint}
	}
	return exit
}

// Exit statuses: a contract with scripts.
const (
	exitOK            = 0
	exitFailure       = 1  // error
	exitDegraded      = 2  // degraded, or changes would be made
	exitRefused       = 3  // refused by a gate; its reason code is on stderr
	exitNotAuthorised = 4  // the caller's role does not allow it
	exitUnreachable   = 5  // the daemon does not answer
	exitTimeout       = 6  // timed out waiting; the run goes on
	exitConflict      = 7  // something else is going on there
	exitUsage         = 64 // the command line is wrong
)

// exitError ends the program with code. A nil err prints nothing, because the output has said it.
type exitError struct {
	code int
	err  error
	hint []string // what to do about it, up to the corrected command line
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a wrong command line and how to write it.
func usageError(err error, hint ...string) *exitError {
	return &exitError{code: exitUsage, err: err, hint: hint}
}

// requestError returns the exit status for an answer that is not a success. what describes the
// request.
func requestError(what string, err error) error {
	if e, ok := errors.AsType[*remote.Error](err); ok {
		exit := remoteError(what, e)
		if errors.Is(err, api.ErrPerhapsSent) {
			exit.hint = append([]string{api.ErrPerhapsSent.Error() + ": look at fencectl status before you give it again"}, exit.hint...)
		}
		return exit
	}
	if errors.Is(err, api.ErrSilent) {
		return &exitError{code: exitUnreachable, err: fmt.Errorf("%s: %w", what, err),
			hint: []string{"it is stopped or hangs: systemctl status fenced; journalctl -u fenced", "systemctl restart fenced takes open runs up where they are"}}
	}
	if errors.Is(err, api.ErrUnreachable) {
		return &exitError{code: exitUnreachable, err: fmt.Errorf("%s: %w", what, err),
			hint: []string{"is it running? systemctl status fenced", "another socket is named with --socket"}}
	}
	if errors.Is(err, api.ErrPerhapsSent) { // interrupted
		return &exitError{code: exitFailure, err: fmt.Errorf("%s: %w", what, err), hint: []string{"look at fencectl status before you give it again"}}
	}
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", what, err)
	}
	exit := &exitError{code: exitFailure, err: fmt.Errorf("%s: failed (%s): %w", what, e.Code, err)}
	if e.Hint != "" {
		exit.hint = []string{e.Hint}
	}
	switch e.Status {
	case http.StatusForbidden:
		exit.code, exit.err = exitNotAuthorised, fmt.Errorf("%s: %w", what, err)
	case http.StatusConflict:
		exit.code, exit.err = exitConflict, fmt.Errorf("%s: conflict (%s): %w", what, e.Code, err)
		if e.Code == api.CodeSecondPersonNeeded {
			exit.code = exitRefused
			exit.err = fmt.Errorf("%s: not yet (%s): %w", what, e.Code, err)
		}
	case http.StatusUnprocessableEntity:
		exit.code = exitRefused
		exit.err = fmt.Errorf("%s: refused (%s): %w", what, e.Code, err)
	}
	return exit
}

// report prints an error, as every verb does, and returns its exit status.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	exit, ok := errors.AsType[*exitError](err)
	if !ok {
		exit = &exitError{code: exitFailure, err: err}
	}
	if exit.err != nil {
		fmt.Fprintf(w, "fencectl: %s\n", escapeControl(err.Error()))
	}
	for _, hint := range exit.hint {
		fmt.Fprintf(w, "hint: %s\n", escapeControl(hint))
	}
	return exit.code
}

func newVersionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version of fencectl (fencectl status shows the daemon's)",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			return c.printValue(map[string]string{"version": version}, func() error {
				_, err := fmt.Fprintf(c.out, "fencectl %s\n", escapeControl(version))
				return err
			})
		},
	}
}
