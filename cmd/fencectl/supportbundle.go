package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/support"
)

// bundleOptions are the command line of support-bundle.
type bundleOptions struct {
	config string
	force  bool
	out    bundleOutput
}

func newSupportBundleCommand(c *cli) *cobra.Command {
	o := bundleOptions{out: bundleOutput{cli: c}}
	cmd := &cobra.Command{
		Use:   "support-bundle [-o FILE]",
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
	flags.VarP(&o.out, "output", "o", "the new `FILE` (default: fenced-support-TIME.tar.gz); json or yaml as for every verb")
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
	r, err := writeBundle(path, o.force, func(f *os.File) (support.Result, error) {
		return support.Collect(ctx, support.Options{Client: c.client(), Cluster: c.cluster, Config: o.config, Daemon: program, Version: version}, f)
	})
	if err != nil {
		return err
	}
	return c.printValue(bundled{path, r}, func() error { return c.printBundle(path, r) })
}

// writeBundle makes a file that only its owner can read, and leaves none that is not whole. It
// replaces another only by force, and then never the file that a link leads to.
func writeBundle(path string, force bool, write func(*os.File) (support.Result, error)) (r support.Result, err error) {
	var f *os.File
	if force {
		f, err = os.CreateTemp(filepath.Dir(path), ".fenced-support-*") // with mode 0600
	} else {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err != nil {
		exit := &exitError{code: exitFailure, err: fmt.Errorf("make the file: %w", err)}
		if errors.Is(err, fs.ErrExist) {
			exit.hint = []string{"name another file with -o, or replace it with --force"}
		}
		return r, exit
	}
	r, err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil && force {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return r, fmt.Errorf("write the support bundle %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return r, nil
}

func (c *cli) printBundle(path string, r support.Result) error {
	missing := newTable("NOT IN IT", "WHY")
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
