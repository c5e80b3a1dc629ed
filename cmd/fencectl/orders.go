package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

// orderVerb is one row of the table of orders: a verb that only sends its order, and
// waits for the run if asked.
type orderVerb struct {
	verb api.Verb
	arg  string // NODE or RUN; "" = it is about a cluster, or all
	// command has Use, Short and Long.
	command *cobra.Command
	forHelp string // help of --for; "" = the verb has no end of its own
	asIs    bool   // it has --as-is
	goal    *goal  // what --wait waits for; nil = there is no run
}

// orderVerbs is the table. Orders that first show their effect and ask for the node's
// name have a file each: fence.go, confirmoff.go, bmc_enroll.go.
func orderVerbs() []orderVerb {
	return []orderVerb{
		{verb: api.Hold, arg: "NODE", forHelp: "end by itself after this time", command: &cobra.Command{
			Use:   "hold NODE --reason WHY [--for 4h]",
			Short: "keep one node from being fenced",
			Long: `Keep one node from being fenced, by checks and by people, until release or for the
time of --for. A run on it whose Node is not isolated yet powers its host on again
and ends Aborted; one whose Node is isolated completes, so that no host stays off.

It binds at once, also when the state cannot be saved: then it says so, and tries
again. A hold that stands is never shortened; release it first.`,
		}},
		{verb: api.Release, arg: "NODE", command: &cobra.Command{
			Use:   "release NODE --reason WHY",
			Short: "end a node's hold, or its quarantine",
			Long: `End the hold of a node, or the quarantine of a host that was fenced again and
again; the runs before it count no more. The freeze of a BMC that lied is another
thing: fencectl bmc release.`,
		}},
		{verb: api.Unfence, arg: "NODE", goal: &goal{unfence: true}, command: &cobra.Command{
			Use:   "unfence NODE --reason WHY",
			Short: "bring back what is Held, was fenced with --off-only, or is about to be",
			Long: `Power a host on again that was fenced with --off-only or whose run is Held, wait
for its Node and restore it. Before the Node is isolated it stops the run.

With --wait the exit status is 0 when the run ended, 1 when it is still or again
Held, 6 after --timeout.`,
		}},
		{verb: api.Abort, arg: "RUN", asIs: true, goal: &goal{unfence: true}, command: &cobra.Command{
			Use:   "abort RUN --reason WHY",
			Short: "want no more of a run",
			Long: `Give a run up. Before its Node is isolated the host is powered on again and the run
ends Aborted; after that nothing new is begun, and the host and its Node are
brought back. A Held run goes on like with unfence.

With --as-is (admin) a Held run ends at once and its host stays as it is, whatever
that is: fenced forgets that it owes the host anything.

With --wait the exit status is 0 when the run ended, 1 when it is Held, 6 after
--timeout.`,
		}},
		{verb: api.Retry, arg: "RUN", goal: &goal{fromHeld: true}, command: &cobra.Command{
			Use:   "retry RUN --reason WHY",
			Short: "take up a run that is Held, or waits for its next attempt",
			Long: `Take a run up again after what kept it was mended. One that waits for its next
attempt goes at once. A Held one goes on where it stopped: at step 1, with every
check asked afresh, or, when its Node is isolated already, at step 3. When its
attempts are used up it has one more.

With --wait the exit status is 0 when the run is done, 1 when it is Held again, 3
when it was aborted by a gate, 6 after --timeout.`,
		}},
		{verb: api.Pause, forHelp: "resume by itself after this time", command: &cobra.Command{
			Use:   "pause --reason WHY [--for 2h] [--cluster NAME]",
			Short: "stop deciding and acting",
			Long: `Begin nothing new, in one cluster or in all, and take back what can be taken
back: a run whose Node is not isolated yet powers its host on again and ends
Aborted; one whose Node is isolated completes, so that no host stays off. With
--for it ends by itself, and the quiet period follows.

It binds at once, also when the state cannot be saved: then it says so, and tries
again. A pause that stands is never shortened. Without this socket:
systemctl start fenced-pause.`,
		}},
		{verb: api.Resume, command: &cobra.Command{
			Use:   "resume --reason WHY [--cluster NAME]",
			Short: "go on after a pause",
			Long: `Go on after a pause. New fencing begins after the quiet period. A pause by the file
of control.pauseFile stands until that is gone: systemctl start fenced-resume.`,
		}},
		{verb: api.Arm, command: &cobra.Command{
			Use:   "arm --reason WHY [--cluster NAME]",
			Short: "let a cluster in mode observe be acted on (admin)",
			Long: `Raise a cluster in mode observe to evaluate: from now on fenced acts. The order is
stored; a daemon that lost its state observes again.`,
		}},
		{verb: api.Disarm, command: &cobra.Command{
			Use:   "disarm --reason WHY [--cluster NAME]",
			Short: "take arm back (admin)",
			Long:  `Take arm back: fenced judges and explains, and does not act.`,
		}},
		{verb: api.ReleaseBMC, arg: "NODE", command: &cobra.Command{
			Use:   "release NODE --reason WHY",
			Short: "end the freeze of a host whose BMC said Off while it was on (admin)",
			Long: `End the freeze of a host whose BMC said Off while the host went on running, and
with the last one of its model and firmware the freeze of all that are like it.
Mend the BMC first: a false Off is how two machines come to write one disk.`,
		}},
	}
}

// addOrderVerbs makes a command of each row: bmc/release below bmc.
func addOrderVerbs(c *cli, root *cobra.Command) {
	for _, v := range orderVerbs() {
		parent := root
		if above, _, nested := strings.Cut(string(v.verb), "/"); nested {
			for _, sub := range root.Commands() {
				if sub.Name() == above {
					parent = sub
				}
			}
		}
		parent.AddCommand(v.make(c))
	}
}

// orderFlags are the flags of the rows.
type orderFlags struct {
	waiting
	reason string
	asIs   bool
	length time.Duration
}

func (v orderVerb) make(c *cli) *cobra.Command {
	var f orderFlags
	cmd := v.command
	cmd.Args = wants(strings.Fields(v.arg)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return v.run(cmd, c, args, f) }
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the records (mandatory)")
	if v.forHelp != "" {
		cmd.Flags().DurationVar(&f.length, "for", 0, v.forHelp)
	}
	if v.asIs {
		cmd.Flags().BoolVar(&f.asIs, "as-is", false, "end a Held run and leave the host as it is (admin)")
	}
	if v.goal != nil {
		f.flags(cmd)
	}
	return cmd
}

func (v orderVerb) run(cmd *cobra.Command, c *cli, args []string, f orderFlags) error {
	line := strings.Join(append([]string{cmd.CommandPath()}, args...), " ")
	if err := needReason(f.reason, line); err != nil {
		return err
	}
	if err := checkFor(f.length, cmd.Flags().Changed("for"), line); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	o := api.Order{Verb: v.verb, Cluster: c.cluster, Reason: f.reason, AsIs: f.asIs, For: api.Span(f.length)}
	switch v.arg {
	case "NODE":
		o.Node = args[0]
	case "RUN":
		o.Run = args[0]
	}
	what := strings.Join(append([]string{cmd.Name()}, args...), " ")
	return c.give(cmd.Context(), o, what, f.waiting, v.goal)
}

// give sends an order and, if asked, waits for its run.
func (c *cli) give(ctx context.Context, o api.Order, what string, w waiting, g *goal) error {
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return failed(what, err)
	}
	return c.accepted(ctx, w, rep, g)
}

// checkFor: a slip like --for 0 must not become a stop without an end.
func checkFor(length time.Duration, given bool, line string) error {
	if given && length <= 0 {
		return usageError(errors.New("--for is a time, like 4h or 30m"), line+" --for 4h")
	}
	return nil
}
