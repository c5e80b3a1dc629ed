package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
)

func newBMCCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bmc VERB",
		Short: "list, test, audit and enroll the BMCs",
		Args:  cobra.ArbitraryArgs, // RunE names the unknown verb
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(errors.New("no verb of bmc given"), "fencectl bmc --help")
			}
			return usageError(fmt.Errorf("unknown verb %q of bmc", args[0]), "fencectl bmc --help")
		},
	}
	cmd.AddCommand(newBMCListCommand(c), newBMCTestCommand(c), newBMCAuditCommand(c), newBMCEnrollCommand(c))
	return cmd
}

func newBMCListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list every BMC, and whether a fence could rely on it",
		Long: `List every device that switches a host's power, with the result of its last BMC
health check. -o wide adds model, firmware and findings.

The exit status is 2 if a device is not dependable: three health checks in a row
failed, the device refuses its account, nothing proves that it is the node's, the
entry in the inventory is unusable, or fenced refuses the host until a person acts.
It is 2 as well if a device was not checked yet: after a start of the daemon, and with
sweep.interval 0 until fencectl bmc test NODE.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.bmcList(cmd.Context()) },
	}
}

func (c *cli) bmcList(ctx context.Context) error {
	rep, err := c.client().BMCs(ctx, c.cluster)
	if err != nil {
		return requestError("list the BMCs", err)
	}
	return c.showBMCs(rep)
}

func newBMCTestCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "test NODE",
		Short: "check a host's BMCs now (operator)",
		Long: `Check every device of a node's host now: account, power, identity, latency. This
only reads. Run it after you changed a cable, a password or firmware.

The exit status is that of fencectl bmc list.`,
		Args: exactArgs("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.bmcTest(cmd.Context(), args[0]) },
	}
}

func (c *cli) bmcTest(ctx context.Context, node string) error {
	rep, err := c.client().LookAtBMCs(ctx, wire.Order{Verb: wire.TestBMC, Cluster: c.cluster, Node: node})
	if err != nil {
		return requestError("test the BMCs of "+node, err)
	}
	if err := c.showBMCs(rep); err != nil {
		return err
	}
	if slices.ContainsFunc(rep.Value.BMCs, func(b wire.BMC) bool { return b.Problem != "" }) {
		return &exitError{code: exitDegraded} // who asks for a check wants to know of one failure
	}
	return nil
}

// showBMCs prints devices. It exits with 2 if one is not dependable, or not checked yet.
func (c *cli) showBMCs(rep api.Reply[wire.BMCs]) error {
	var names []string
	for i := range rep.Value.BMCs {
		names = append(names, rep.Value.BMCs[i].Node)
	}
	degraded := rep.Value.Undependable() > 0 || rep.Value.Count().NotChecked > 0
	return c.printDegraded(degraded, rep.Body, func() error { return c.printBMCs(rep.Value) }, names...)
}

func newBMCAuditCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "audit [NODE]",
		Short: "list weaknesses of the BMCs, or check one host for them now (operator)",
		Long: `Check a node's devices for weaknesses now: cipher suite 0, accounts without a name,
default passwords, certificates, clocks. This changes nothing on the device and
tries only the configured password. Without NODE it lists what the daily audits of
all devices found.

The exit status is 2 if there is a finding, or if a device could not be audited.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.MaximumNArgs(1)(cmd, args); err != nil || len(args) == 0 {
				return err
			}
			return checkArguments([]string{"NODE"}, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			node := ""
			if len(args) > 0 {
				node = args[0]
			}
			return c.bmcAudit(cmd.Context(), node)
		},
	}
}

func (c *cli) bmcAudit(ctx context.Context, node string) error {
	var rep api.Reply[wire.BMCs]
	var err error
	if node == "" {
		rep, err = c.client().BMCs(ctx, c.cluster)
	} else {
		rep, err = c.client().LookAtBMCs(ctx, wire.Order{Verb: wire.AuditBMC, Cluster: c.cluster, Node: node})
	}
	if err != nil {
		return requestError("audit the BMCs", err)
	}
	return c.printDegraded(rep.Value.Weak() > 0, rep.Body, func() error { return c.printAudit(rep.Value) })
}

func (c *cli) printBMCs(b wire.BMCs) error {
	if len(b.BMCs) == 0 {
		_, err := fmt.Fprintln(c.out, "no host has a BMC")
		return err
	}
	several, now := slices.ContainsFunc(b.BMCs, func(d wire.BMC) bool { return d.Cluster != b.BMCs[0].Cluster }), time.Now()
	head := []string{"NODE", "LEVEL", "DEVICE", "DRIVER", "ASSURANCE", "POWER", "IDENTITY", "LATENCY", "CHECKED", "PROBLEM"}
	if several {
		head = append([]string{"CLUSTER"}, head...)
	}
	if c.output == "wide" {
		head = append(head, "MODEL", "FIRMWARE", "FINDINGS")
	}
	t := newTable(head...)
	t.spare = []string{"ASSURANCE", "LATENCY", "CHECKED"}
	for i := range b.BMCs {
		d := &b.BMCs[i]
		row := []any{
			hostOf(d), levelOf(d), orDash(d.Device), orDash(d.Driver), assurance(d.Assurance), d.Power, identity(d.Identity),
			latency(d.LatencySeconds), c.checked(d, now), problem(d), model(d), orDash(d.Firmware), findingCodes(d),
		}
		if several {
			row = append([]any{d.Cluster}, row...)
		}
		t.add(row...)
	}
	return t.write(c.out, c.painter(c.out), "")
}

// checked is when the device was last looked at.
func (c *cli) checked(d *wire.BMC, now time.Time) cell {
	if d.NotChecked() {
		return cell{text: "not checked yet", color: yellow}
	}
	return cell{text: c.when(d.Checked, now)}
}

// hostOf is what people call the host: its Node, or its entry.
func hostOf(d *wire.BMC) string { return cmp.Or(d.Node, d.Host, d.Source, "-") }

func levelOf(d *wire.BMC) string {
	if d.Level == 0 {
		return "-"
	}
	return fmt.Sprint(d.Level)
}

func assurance(text string) cell {
	if text == "lower" {
		return cell{text: text, color: yellow}
	}
	return cell{text: orDash(text)}
}

func identity(text string) cell {
	switch text {
	case "match", "":
		return cell{text: orDash(text)}
	case "mismatch":
		return cell{text: text, color: red}
	}
	return cell{text: text, color: yellow}
}

func latency(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return (time.Duration(seconds * float64(time.Second))).Round(time.Millisecond).String()
}

// problem returns why a fence would fail or be refused, the reason code first; "-" for
// none. A failure that may pass is yellow.
func problem(d *wire.BMC) cell {
	var failed string
	if d.Problem != "" {
		failed = d.Reason + ": " + d.Problem
	}
	switch {
	case len(d.Refused) > 0 && failed != "": // what failed may be why it is refused
		return cell{text: failed + "; " + d.Refused[0].Code, color: red}
	case len(d.Refused) > 0:
		return cell{text: d.Refused[0].Code + ": " + d.Refused[0].Message, color: red}
	case failed == "":
		return cell{text: "-"}
	case d.Dependable:
		return cell{text: failed, color: yellow}
	}
	return cell{text: failed, color: red}
}

// model is what the device is; one that could not say so lately shows why.
func model(d *wire.BMC) cell {
	if d.DescribeProblem == "" {
		return cell{text: orDash(d.Model)}
	}
	return cell{text: orDash(d.Model) + " (not told lately: " + d.DescribeProblem + ")", color: yellow}
}

func findingCodes(d *wire.BMC) cell {
	var codes []string
	for _, f := range d.Findings {
		codes = append(codes, f.Code)
	}
	if len(codes) == 0 {
		return cell{text: "-"}
	}
	return cell{text: strings.Join(codes, ","), color: yellow}
}

// printAudit shows one line for each weakness, and for what could not be looked at.
func (c *cli) printAudit(b wire.BMCs) error {
	t := newTable("NODE", "DEVICE", "FINDING", "MESSAGE")
	audited := 0
	for i := range b.BMCs {
		d := &b.BMCs[i]
		if !d.Audited.IsZero() {
			audited++
		}
		if why := cmp.Or(d.AuditProblem, d.Problem); why != "" {
			t.add(hostOf(d), orDash(d.Device), cell{text: "not audited", color: red}, why)
		}
		for _, f := range d.Findings {
			t.add(hostOf(d), orDash(d.Device), cell{text: f.Code, color: yellow}, f.Message)
		}
	}
	if len(t.rows) == 0 {
		_, err := fmt.Fprintf(c.out, "no weakness is known of %d devices, %d of them audited so far\n", len(b.BMCs), audited)
		return err
	}
	return t.write(c.out, c.painter(c.out), "")
}

func newBMCEnrollCommand(c *cli) *cobra.Command {
	var reason string
	var yes bool
	var a about
	cmd := &cobra.Command{
		Use:   "enroll NODE|--machine NAMESPACE/NAME --reason WHY",
		Short: "confirm that a host's BMCs switch this very machine (admin)",
		Long: `Confirm that the devices of a node's host, as they are configured now, switch this
very machine. fenced reads every device. If a device reports an identity, it must
match the Node. An outlet cannot prove which host it feeds, nor can a BMC that reports
no UUID: check the cabling or the address first.

This is needed for devices that report no identity, and after the address of a
BareMetalHost changed. The command shows what would be stored, then asks for the
node's name on the terminal; --yes skips the prompt.

With --machine the order is about a Machine. If it has no Node, there is no system
UUID to compare with: you confirm that the machine which answers there now is that of
the Machine, and fenced stores the UUID that it reports. Look at the console of the
BMC, or at the server itself, first.`,
		Args: a.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			order := a.of(wire.Order{Verb: wire.EnrollBMC, Cluster: c.cluster, Reason: reason}, args)
			return c.bmcEnroll(cmd.Context(), order, yes)
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for the node's name")
	return cmd
}

func (c *cli) bmcEnroll(ctx context.Context, order wire.Order, yes bool) error {
	line := order.Command("bmc enroll")
	if err := needReason(order.Reason, line); err != nil {
		return err
	}
	if !yes {
		if !isTerminal(c.in) {
			return usageError(errors.New("bmc enroll asks for "+nameOf(order)+" on a terminal, and there is none"), fmt.Sprintf("%s --reason %q --yes", line, order.Reason))
		}
		var err error
		if order.Shown, err = c.confirmEnroll(ctx, order); err != nil {
			return err
		}
	}
	rep, err := c.client().Do(ctx, order)
	if err != nil {
		return requestError("enroll the BMCs of "+order.Of(), err)
	}
	return c.print(rep.Body, func() error { return c.preview(c.out, rep.Value) })
}

// confirmEnroll shows what would be stored, and asks the person to type the name. The order is then about what was shown.
func (c *cli) confirmEnroll(ctx context.Context, o wire.Order) (shown string, err error) {
	o.DryRun = true
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return "", requestError("enroll the BMCs of "+o.Of(), err)
	}
	if err := c.preview(c.errs, rep.Value); err != nil {
		return "", err
	}
	return rep.Value.Shown, c.typeName(ctx, "type "+nameOf(o)+" to enroll them: ", o.Of(), "nothing was stored")
}
