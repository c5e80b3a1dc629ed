package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/support"
	"github.com/fenced/fenced/internal/wire"
)

func newLogLevelCommand(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL --reason WHY]",
		Short: "show how much fenced logs, or change it (admin)",
		Long: `Show how much fenced logs, or change it: debug, info, warn or error. The new level
applies at once, until fenced is reloaded or restarted; then log.level of fenced.yaml
applies again. The audit log lacks nothing at any level.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains(wire.LogLevels, args[0]) {
				return usageError(fmt.Errorf("log-level takes one of %s, or nothing", strings.Join(wire.LogLevels, ", ")), "fencectl log-level debug --reason WHY")
			}
			return nil
		},
		ValidArgs: wire.LogLevels,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.showLogLevel(cmd.Context())
			}
			if err := needReason(reason, "fencectl log-level "+args[0]); err != nil {
				return err
			}
			return c.sendOrder(cmd.Context(), wire.Order{Verb: wire.LogLevel, Level: args[0], Reason: reason}, "log-level", waitFlags{}, nil)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory with LEVEL)")
	return cmd
}

// showLogLevel shows the level that applies now.
func (c *cli) showLogLevel(ctx context.Context) error {
	rep, err := c.client().Status(ctx)
	if err != nil {
		return requestError("read the log level", err)
	}
	return c.printValue(map[string]string{"logLevel": rep.Value.LogLevel}, func() error {
		_, err := fmt.Fprintln(c.out, escapeControl(rep.Value.LogLevel))
		return err
	})
}

func newExportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "export FILE",
		Short: "write the whole state of the daemon to a new file (admin)",
		Long: `Write the whole state to a new file: open runs, saved Nodes, orders, holds, pins and
history, for a cold standby or another engine. The file has no passwords, but it
names every host. The daemon keeps running; what it does later is not in the file.`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.export(cmd.Context(), args[0]) },
	}
}

// exported is the answer of export.
type exported struct {
	File string `json:"file"`
}

// export writes the state to a new file, and removes it again if that fails.
func (c *cli) export(ctx context.Context, path string) (err error) {
	f, err := newFile(path, false, "name another file: fencectl overwrites none")
	if err != nil {
		return err
	}
	if err := finish(f, path, c.client().Export(ctx, f)); err != nil {
		return requestError("export the state", err)
	}
	return c.printValue(exported{File: path}, func() error {
		_, err := fmt.Fprintf(c.out, "the state is in %s\n", escapeControl(path))
		return err
	})
}

func newImportCommand(c *cli) *cobra.Command {
	var config string
	var set []string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "read an export into an empty state (stop the daemon first)",
		Long: `Read a file of fencectl export into the state that fenced.yaml names, by running
fenced --import. The state must be empty and the daemon stopped. When fenced starts,
it continues the open runs. Before that, stop the fenced that wrote the file, and
make sure that it never starts again.`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.runDaemonProgram(cmd.Context(), c.out, append([]string{"--import", args[0]}, configFlags(config, set)...)...)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file of fenced, instead of its own default")
	cmd.Flags().StringArrayVar(&set, "set", nil, "override one of its keys, KEY=VALUE (repeatable)")
	return cmd
}

// daemonProgram finds fenced: beside this program, where the package puts it, or on the path.
// The path is last, because this is often run by root.
func daemonProgram() (string, error) {
	if own, err := os.Executable(); err == nil {
		dir := filepath.Dir(own)
		for _, path := range []string{filepath.Join(dir, "fenced"), filepath.Join(dir, "../libexec/fenced/fenced")} {
			if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	path, err := exec.LookPath("fenced")
	if err != nil {
		return "", &exitError{code: exitFailure, err: fmt.Errorf("the program of the daemon, which does this, is not installed: %w", err),
			hint: []string{"install the package of fenced on this host"}}
	}
	return path, nil
}

// bundleOptions are the command line of support-bundle.
type bundleOptions struct {
	config string
	force  bool
	out    bundleOutput
}

func newSupportBundleCommand(c *cli) *cobra.Command {
	o := bundleOptions{out: bundleOutput{cli: c}}
	cmd := &cobra.Command{
		Use:   "support-bundle [--file FILE]",
		Short: "write what a problem report needs to a new file, without secrets",
		Long: `Write what somebody needs to know who looks into a problem to a new file, a tar.gz:
versions, the configuration, status, runs, what forbids to fence the nodes that are
not healthy, the BMCs, metrics, the journal of the unit, and the head of the audit log.

It asks with your rights: as root it has everything, a viewer gets what a viewer may
see. What cannot be read, and why, is in the file MANIFEST of the archive. So it works
while the daemon is down, too.

The file holds no password, key or token. It names hosts, nodes, addresses and people:
read it before you send it to somebody.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.supportBundle(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.out.file, "file", "", "the new `FILE` (default: fenced-support-TIME.tar.gz)")
	flags.VarP(&o.out, "output", "o", "json or yaml as for every verb; another text is the FILE, as with --file")
	flags.StringVar(&o.config, "config", config.DefaultFile, "configuration of fenced")
	flags.BoolVar(&o.force, "force", false, "replace FILE if it exists")
	return cmd
}

// bundleOutput is -o of support-bundle: the file, or the form of the answer as for every verb.
type bundleOutput struct {
	cli  *cli
	file string
}

// Set takes one -o; both may be given.
func (b *bundleOutput) Set(text string) error {
	switch {
	case text == "":
		return errors.New("it is empty")
	case slices.Contains(outputs, text):
		b.cli.output = text
	default:
		b.file = text
	}
	return nil
}

// String is the default, for the help.
func (b *bundleOutput) String() string { return "" }

// Type is what the help calls the value.
func (b *bundleOutput) Type() string { return "FILE" }

// bundled is the answer of support-bundle.
type bundled struct {
	File string `json:"file"`
	support.Result
}

func (c *cli) supportBundle(ctx context.Context, o bundleOptions) error {
	path := o.out.file
	if path == "" {
		path = "fenced-support-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	program, err := daemonProgram()
	if err != nil {
		program = "fenced" // the manifest says what could not be run
	}
	f, err := newFile(path, o.force, "name another file with --file, or replace it with --force")
	if err != nil {
		return err
	}
	r, err := support.Collect(ctx, support.Options{Client: c.client(), Cluster: c.cluster, Config: o.config, Daemon: program, Version: version}, f)
	if err := finish(f, path, err); err != nil {
		return fmt.Errorf("write the support bundle %s: %w", path, err)
	}
	return c.printValue(bundled{path, r}, func() error { return c.printBundle(path, r) })
}

// newFile makes a file that only its owner can read; finish puts it in its place. It is to replace another one only by
// force, and then never the file that a link leads to. hint is what to do about one that exists.
func newFile(path string, force bool, hint string) (f *os.File, err error) {
	if force {
		f, err = os.CreateTemp(filepath.Dir(path), ".fenced-support-*") // with mode 0600
	} else {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err == nil {
		return f, nil
	}
	exit := &exitError{code: exitFailure, err: fmt.Errorf("make the file: %w", err)}
	if errors.Is(err, fs.ErrExist) {
		exit.hint = []string{hint}
	}
	return nil, exit
}

// finish ends the writing of a new file, which may have failed: no file is left that is not whole.
func finish(f *os.File, path string, err error) error {
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil && f.Name() != path {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

func (c *cli) printBundle(path string, r support.Result) error {
	missing := newTable("PART", "PROBLEM")
	there := 0
	for _, p := range r.Parts {
		if p.Problem == "" {
			there++
			continue
		}
		missing.add(p.Name, p.Problem)
	}
	fmt.Fprintf(c.out, "the support bundle is in %s, with %d parts\n", escapeControl(path), there)
	if r.Daemon != "" {
		fmt.Fprintln(c.out, "the daemon did not answer: is it running? systemctl status fenced")
	}
	fmt.Fprintln(c.out, "it holds no password, but it names hosts, nodes, addresses and people: read it before you send it")
	return missing.write(c.out, c.painter(c.out), "")
}
