package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/policy"
	"github.com/spf13/cobra"
)

type fenceOptions struct {
	waiting
	reason  string
	offOnly bool
	yes     bool
	dryRun  bool
}

func newFenceCommand(c *cli) *cobra.Command {
	var o fenceOptions
	cmd := &cobra.Command{
		Use:   "fence NODE --reason WHY",
		Short: "power a node's host off, make it safe to replace, and bring it back",
		Long: `Power a node's host off, isolate its Node and bring both back: the six steps.

It first shows the proof of the host's identity and the effect, and asks for the
node's name on the terminal; --yes goes without and needs the role admin. An
equal run that is already under way is joined. With --off-only the host stays
off, and the run is Held, until fencectl unfence.

With --wait the exit status is 0 when the run is done, 1 when it is Held and
needs a human, 3 when it was aborted by a gate, 6 after --timeout.`,
		Args: wants("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.fence(cmd.Context(), args[0], o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.reason, "reason", "", "why, for the records (mandatory)")
	flags.BoolVar(&o.offOnly, "off-only", false, "leave the host off until unfence")
	flags.BoolVar(&o.yes, "yes", false, "do not ask for the node's name (admin)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would be done and what forbids it (exit 3), then stop")
	o.flags(cmd)
	return cmd
}

func (c *cli) fence(ctx context.Context, node string, o fenceOptions) error {
	line := fmt.Sprintf("fencectl fence %s --reason %q", node, o.reason)
	if err := needReason(o.reason, "fencectl fence "+node); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	order := api.Order{Verb: api.Fence, Cluster: c.cluster, Node: node, Reason: o.reason, OffOnly: o.offOnly}
	if o.dryRun {
		return c.dryRun(ctx, order)
	}
	if !o.yes {
		if !isTerminal(c.in) {
			return usageError(errors.New("fence asks for the node's name on a terminal, and there is none"), line+" --yes   (role admin)")
		}
		if err := c.confirm(ctx, order); err != nil {
			return err
		}
	}
	order.Yes = o.yes
	rep, err := c.client().Do(ctx, order)
	if err != nil {
		return failed("fence "+node, err)
	}
	return c.accepted(ctx, o.waiting, rep, &goal{offOnly: o.offOnly})
}

// dryRun shows what the order would do; a gate that forbids it is exit 3.
func (c *cli) dryRun(ctx context.Context, o api.Order) error {
	o.DryRun = true
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return failed("fence "+o.Node, err)
	}
	if err := c.print(rep.Body, func() error { return c.preview(c.out, rep.Value) }); err != nil {
		return err
	}
	return refusedBy("fence", o.Node, rep.Value.Gates)
}

// confirm shows identity and effect and has the node's name typed: most wrong
// fences are right orders for the wrong name.
func (c *cli) confirm(ctx context.Context, o api.Order) error {
	o.DryRun = true
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return failed("fence "+o.Node, err)
	}
	if err := c.preview(c.errs, rep.Value); err != nil {
		return err
	}
	if err := refusedBy("fence", o.Node, rep.Value.Gates); err != nil {
		return err
	}
	fmt.Fprintf(c.errs, "type the node's name to fence it: ")
	typed, err := c.readLine(ctx)
	if err != nil {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(typed) != o.Node {
		return errors.New("not confirmed: nothing was done")
	}
	return nil
}

// readLine reads what is typed, until the line or ctx ends. A read of a
// terminal cannot be interrupted, so it is left behind then.
func (c *cli) readLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	typed := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(c.in, 1024)).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil // what was typed so far counts
		}
		typed <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-typed:
		return r.line, r.err
	}
}

func (c *cli) preview(w io.Writer, r api.OrderResult) error {
	if r.Message != "" {
		fmt.Fprintln(w, clean(r.Message))
	}
	for _, known := range r.Evidence {
		fmt.Fprintln(w, "  * "+clean(known))
	}
	for _, effect := range r.Effect {
		fmt.Fprintln(w, "  - "+clean(effect))
	}
	return gateTable(r.Gates).write(w, c.painter(w), "GATES")
}

func refusedBy(verb, node string, gates []policy.Gate) error {
	for _, g := range gates {
		if !g.Pass {
			return &exitError{code: exitRefused, err: fmt.Errorf("%s %s: refused (%s): %s is %s, not %s", verb, node, g.Reason, g.Name, g.Value, g.Threshold),
				hint: []string{"fencectl explain " + node}}
		}
	}
	return nil
}

// needReason asks for the reason before anything is sent.
func needReason(reason, line string) error {
	if strings.TrimSpace(reason) == "" {
		return usageError(errors.New("an order needs a reason"), line+` --reason "disk fails, ticket 4711"`)
	}
	return nil
}
