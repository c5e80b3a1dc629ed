package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/wire"
)

// auditOptions are the command line of the audit verbs.
type auditOptions struct {
	file   string
	config string

	heads []string // verify

	since time.Duration // show
	node  string
	head  bool
}

func newAuditCommand(c *cli) *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit show|verify",
		Short: "show and verify the audit log: decisions, orders, actions",
		Long: `Show and verify the audit log: what fenced decided and why, what people ordered and
why, and what was done. This reads the files of this host, so it works without the
daemon. Only root and the daemon's user can read them.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("audit has no verb %q", args[0]), "fencectl audit show", "fencectl audit verify")
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			return usageError(errors.New("audit needs a verb"), "fencectl audit show", "fencectl audit verify")
		},
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.file, "file", "", "the log (default: the one that the configuration names)")
	flags.StringVar(&o.config, "config", config.DefaultFile, "configuration of fenced, where it names the log")
	cmd.AddCommand(newAuditShowCommand(c, &o), newAuditVerifyCommand(c, &o))
	return cmd
}

// path is where the log is.
func (o *auditOptions) path() (string, error) {
	if o.file != "" {
		return o.file, nil
	}
	cfg, err := config.Load(o.config)
	if err != nil {
		return "", &exitError{code: exitFailure, err: fmt.Errorf("find the audit log: %w", err), hint: []string{"name it with --file"}}
	}
	return cfg.AuditPath(), nil
}

func newAuditVerifyCommand(c *cli, o *auditOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [--head SEQ:HASH]",
		Short: "verify that no entry of the audit log was changed or removed",
		Long: `Verify that each line of the audit log follows the one before it: no line was
changed, removed, added or moved. The log alone cannot show that its end was cut off
or that all of it was replaced. For that, give a head that was exported earlier: the
daemon writes one to the journal every five minutes ("audit head"). Take the newest
one from the host that stores the journal. FILE.head beside the log is always
compared, but whoever cuts the log can change that file too.

The exit status is 1 if the log is broken; the error names the last good entry.`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error { return c.auditVerify(o) },
	}
	cmd.Flags().StringArrayVar(&o.heads, "head", nil, "an exported head, SEQ:HASH, that the log must hold; may be repeated")
	return cmd
}

// auditProof is the answer of verify.
type auditProof struct {
	File       string `json:"file"`
	First      uint64 `json:"first"`
	Head       string `json:"head"`
	Heads      int    `json:"headsProven"`
	Unfinished int64  `json:"unfinishedBytes"`
}

func (c *cli) auditVerify(o *auditOptions) error {
	var heads []audit.Head
	for _, text := range o.heads {
		h, err := audit.ParseHead(text)
		if err != nil {
			return usageError(err, "fencectl audit verify --head SEQ:HASH")
		}
		heads = append(heads, h)
	}
	path, err := o.path()
	if err != nil {
		return err
	}
	s, err := audit.Verify(path, heads...)
	if err != nil {
		return auditFailed("verify the audit log", err)
	}
	proof := auditProof{File: path, First: s.Before.Seq + 1, Head: s.Head.String(), Heads: len(heads), Unfinished: s.Torn}
	return c.printValue(proof, func() error {
		fmt.Fprintf(c.out, "%s: entries %d to %d are as they were written\n", escapeControl(path), proof.First, s.Head.Seq)
		switch {
		case len(heads) > 0:
		case s.Remembered != audit.Head{}:
			fmt.Fprintf(c.out, "its end was compared only with entry %d, which is remembered beside it: give an exported head with --head\n", s.Remembered.Seq)
		default:
			fmt.Fprintln(c.out, "whether its end is missing was not asked: give an exported head with --head")
		}
		if s.Torn > 0 {
			fmt.Fprintf(c.out, "%d bytes of an unfinished line follow: it is being written, or the daemon crashed\n", s.Torn)
		}
		_, err := fmt.Fprintf(c.out, "head %s\n", s.Head)
		return err
	})
}

// auditFailed adds the hint for a log that cannot be read.
func auditFailed(what string, err error) error {
	exit := &exitError{code: exitFailure, err: fmt.Errorf("%s: %w", what, err)}
	if errors.Is(err, fs.ErrPermission) {
		exit.hint = []string{"it is readable by root and by the daemon's user"}
	}
	if errors.Is(err, fs.ErrNotExist) {
		exit.hint = []string{"name another with --file"}
	}
	return exit
}

func newAuditShowCommand(c *cli, o *auditOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "list the entries of the audit log, oldest first",
		Long: `List the entries of the audit log, oldest first, and verify them while reading.
-o json prints the lines of the file, with \uXXXX in place of control characters.
With --head it prints only SEQ:HASH of the last entry: store it on another host for
fencectl audit verify.`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error { return c.auditShow(o, time.Now()) },
	}
	flags := cmd.Flags()
	flags.Var(days{&o.since}, "since", "only entries of this last time, like 7d or 24h; 0 means all")
	flags.StringVar(&o.node, "node", "", "only entries about this node, or about this NAMESPACE/MACHINE without a node")
	flags.BoolVar(&o.head, "head", false, "print only SEQ:HASH of the last entry")
	return cmd
}

func (c *cli) auditShow(o *auditOptions, now time.Time) error {
	if o.since < 0 {
		return usageError(errors.New("--since is a time back from now"), "fencectl audit show --since 24h")
	}
	path, err := o.path()
	if err != nil {
		return err
	}
	if c.isTable() && !o.head {
		fmt.Fprintf(c.out, "%6s  %-25s  %-8s  %s\n", "SEQ", "TIME", "TYPE", "CLUSTER, NODE OR MACHINE, RUN, STEP, ACTION OR REASON, AND MORE")
	}
	s, err := audit.Walk(path, func(l audit.Line) error {
		e := l.Entry
		if o.head || o.node != "" && cmp.Or(e.Node, e.Machine) != o.node || c.cluster != "" && e.Cluster != c.cluster || o.since > 0 && e.At.Before(now.Add(-o.since)) {
			return nil
		}
		return c.printEntry(l)
	})
	if err != nil {
		return auditFailed("read the audit log", err)
	}
	if o.head {
		_, err = fmt.Fprintln(c.out, s.Head)
	}
	return err
}

// printEntry prints an entry as soon as it is read: a log may be long.
func (c *cli) printEntry(l audit.Line) error {
	switch c.output {
	case "json":
		_, err := fmt.Fprintf(c.out, "%s\n", wire.EscapeJSON(l.Raw))
		return err
	case "yaml":
		text, err := toYAML(l.Raw)
		if err == nil {
			_, err = fmt.Fprintf(c.out, "---\n%s", text)
		}
		return err
	}
	e := l.Entry
	var b strings.Builder
	fmt.Fprintf(&b, "%6d  %-25s  %-8s", e.Seq, e.At.Local().Format(time.RFC3339), e.Type)
	for _, word := range []string{e.Cluster, cmp.Or(e.Node, e.Machine), e.Run, e.Step, e.Action, e.Reason} {
		if word != "" {
			fmt.Fprintf(&b, "  %s", word)
		}
	}
	if e.Actor != "" && !strings.HasPrefix(e.Message, e.Actor) {
		fmt.Fprintf(&b, "  by %s", e.Actor)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, "  %s", e.Message)
	}
	if e.Origin != nil {
		fmt.Fprintf(&b, "  fenced %s on %s, store %s", e.Origin.Version, e.Origin.Host, e.Origin.Store)
	}
	_, err := fmt.Fprintln(c.out, escapeControl(b.String()))
	return err
}
