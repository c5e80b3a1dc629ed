package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

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
			order := a.of(api.Order{Verb: api.EnrollBMC, Cluster: c.cluster, Reason: reason}, args)
			return c.bmcEnroll(cmd.Context(), order, yes)
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for the node's name")
	return cmd
}

func (c *cli) bmcEnroll(ctx context.Context, order api.Order, yes bool) error {
	line := "fencectl bmc enroll " + asTyped(order)
	if err := needReason(order.Reason, line); err != nil {
		return err
	}
	if !yes {
		if !isTerminal(c.in) {
			return usageError(errors.New("bmc enroll asks for "+nameOf(order)+" on a terminal, and there is none"), fmt.Sprintf("%s --reason %q --yes", line, order.Reason))
		}
		if err := c.confirmEnroll(ctx, order); err != nil {
			return err
		}
	}
	return c.bmcOrder(ctx, order, "enroll the BMCs of "+order.Of())
}

// confirmEnroll shows what would be stored, and asks the person to type the name.
func (c *cli) confirmEnroll(ctx context.Context, o api.Order) error {
	o.DryRun = true
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return requestError("enroll the BMCs of "+o.Of(), err)
	}
	if err := c.preview(c.errs, rep.Value); err != nil {
		return err
	}
	fmt.Fprint(c.errs, "type "+nameOf(o)+" to enroll them: ")
	typed, err := c.readLine(ctx)
	if err != nil {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(typed) != o.Of() {
		return errors.New("not confirmed: nothing was stored")
	}
	return nil
}

func (c *cli) bmcOrder(ctx context.Context, o api.Order, what string) error {
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return requestError(what, err)
	}
	return c.print(rep.Body, func() error { return c.preview(c.out, rep.Value) })
}
