package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

// reasonOperatorOff is why a run is Held after `fence --off-only`.
const reasonOperatorOff = "OperatorOff"

// reasonConfirmedOff is why a run is Held after a manual confirmation.
const reasonConfirmedOff = "ConfirmedOff"

// heldGrace is how long a Held run is given to take up an unfence order.
const heldGrace = 30 * time.Second

// waitFlags is the flags of a verb that can wait for its run.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (w *waitFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "show the new steps until the run ends")
	daysVar(cmd.Flags(), &w.timeout, "timeout", "stop waiting after this time (exit 6); the run continues")
}

func (w *waitFlags) validate() error {
	if w.timeout < 0 || w.timeout > 0 && !w.wait {
		return usageError(errors.New("--timeout needs --wait and a time above 0"), "--wait --timeout 10m")
	}
	return nil
}

// showAndWait shows an order's result and, if asked, waits for the run.
func (c *cli) showAndWait(ctx context.Context, w waitFlags, rep api.Reply[api.OrderResult], g *goal) error {
	if !w.wait || rep.Value.Run == "" {
		return c.print(rep.Body, func() error { return c.printResult(rep.Value) })
	}
	quiet := !c.isTable() // only the body of the ended run
	if !quiet {
		if err := c.printResult(rep.Value); err != nil {
			return err
		}
	}
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	screen := c.newLive(g.newRun)
	end, err := c.follow(ctx, rep.Value.Run, func(r api.RunRecord) bool {
		if !quiet {
			screen.show(r, time.Now())
		}
		return g.reached(r, time.Now())
	})
	if err != nil {
		return err
	}
	run := end.Value.Runs[0]
	if err := c.print(end.Body, func() error { return c.printEnd(run) }); err != nil {
		return err
	}
	return g.exit(run)
}

func (c *cli) printResult(r api.OrderResult) error {
	line := r.Message
	if !strings.Contains(line, r.Run) {
		line += " (run " + r.Run + ")"
	}
	_, err := fmt.Fprintln(c.out, escapeControl(line))
	return err
}

func (c *cli) printEnd(r api.RunRecord) error {
	line := fmt.Sprintf("%s: %s", cmp.Or(r.Node, r.Machine), r.Result)
	if r.Reason != "" {
		line += " (" + r.Reason + ")"
	}
	if !r.Ended.IsZero() {
		line += " after " + span(r.Ended.Sub(r.Started))
	}
	_, err := fmt.Fprintln(c.out, escapeControl(line)+note(r.Note))
	return err
}

// goal is what an order wants of its run.
type goal struct {
	offOnly   bool // Held with the host off
	confirmed bool // Held after a manual confirmation
	unfence   bool // an abort is as good as Done
	fromHeld  bool // the run may be Held still from before
	newRun    bool // the order began the run: all its steps are new

	// firstHeld is the run as it was first seen after the order, while it is still Held
	// from before.
	firstHeld *api.RunRecord
	since     time.Time
}

// reached says whether nothing more is to be waited for.
func (g *goal) reached(r api.RunRecord, now time.Time) bool {
	switch r.Result {
	case api.ResultRunning, api.ResultWaiting: // a waiting run goes on by itself
		return false
	case api.ResultHeld:
		if !g.unfence && !g.fromHeld || g.confirmed && r.Reason == reasonConfirmedOff {
			return true
		}
		if g.firstHeld == nil {
			g.firstHeld, g.since = &r, now
		}
		before := len(g.firstHeld.Steps) == len(r.Steps)
		return !before || now.Sub(g.since) > heldGrace
	}
	return true
}

// exit gives the exit status of a run that is over.
func (g *goal) exit(r api.RunRecord) error {
	switch {
	case r.Result == api.ResultHeld && g.offOnly && r.Reason == reasonOperatorOff:
		return nil
	case r.Result == api.ResultHeld && g.confirmed && r.Reason == reasonConfirmedOff:
		return nil
	case r.Result == api.ResultHeld:
		return &exitError{code: exitFailure, err: fmt.Errorf("run %s is held (%s): %s", r.ID, r.Reason, r.Note),
			hint: []string{"fencectl explain " + targetOf(r), "fencectl timeline " + r.ID}}
	case r.Result == api.ResultAborted && !g.unfence:
		return &exitError{code: exitRefused, err: fmt.Errorf("run %s was aborted (%s): %s", r.ID, r.Reason, r.Note),
			hint: []string{"fencectl explain " + targetOf(r)}}
	}
	return nil
}

// targetOf is how the target of a run is named on a command line.
func targetOf(r api.RunRecord) string {
	return asTyped(api.Order{Cluster: r.Cluster, Node: r.Node, Machine: machineAlone(r)})
}

// machineAlone is the Machine of a run whose target has no Node.
func machineAlone(r api.RunRecord) string {
	if r.Node != "" {
		return ""
	}
	return r.Machine
}
