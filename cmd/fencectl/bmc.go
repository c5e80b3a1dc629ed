package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
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
	rep, err := c.client().LookAtBMCs(ctx, api.Order{Verb: api.TestBMC, Cluster: c.cluster, Node: node})
	if err != nil {
		return requestError("test the BMCs of "+node, err)
	}
	if err := c.showBMCs(rep); err != nil {
		return err
	}
	if slices.ContainsFunc(rep.Value.BMCs, func(b api.BMC) bool { return b.Problem != "" }) {
		return &exitError{code: exitDegraded} // who asks for a check wants to know of one failure
	}
	return nil
}

// showBMCs prints devices. It exits with 2 if one is not dependable, or not checked yet.
func (c *cli) showBMCs(rep api.Reply[api.BMCs]) error {
	if err := c.print(rep.Body, func() error { return c.printBMCs(rep.Value) }); err != nil {
		return err
	}
	if n := rep.Value.Count(); rep.Value.Undependable() > 0 || n.NotChecked > 0 {
		return &exitError{code: exitDegraded}
	}
	return nil
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
	var rep api.Reply[api.BMCs]
	var err error
	if node == "" {
		rep, err = c.client().BMCs(ctx, c.cluster)
	} else {
		rep, err = c.client().LookAtBMCs(ctx, api.Order{Verb: api.AuditBMC, Cluster: c.cluster, Node: node})
	}
	if err != nil {
		return requestError("audit the BMCs", err)
	}
	if err := c.print(rep.Body, func() error { return c.printAudit(rep.Value) }); err != nil {
		return err
	}
	if rep.Value.Weak() > 0 {
		return &exitError{code: exitDegraded}
	}
	return nil
}
