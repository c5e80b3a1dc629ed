package main

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

func newPauseCommand(c *cli) *cobra.Command {
	var reason string
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "pause --reason WHY [--for 2h] [--cluster NAME]",
		Short: "stop deciding and acting",
		Long: `Begin nothing new, in one cluster or in all, and take back what can be taken
back: a run whose Node is not isolated yet powers its host on again and ends
Aborted; one whose Node is isolated completes, so that no host stays off. With
--for it ends by itself, and the quiet period follows.

It binds at once, also when the state cannot be saved: then it says so, and tries
again. A pause that stands is never shortened. Without this socket:
systemctl start fenced-pause.`,
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needReason(reason, "fencectl pause"); err != nil {
				return err
			}
			if err := checkFor(length, cmd.Flags().Changed("for"), "fencectl pause"); err != nil {
				return err
			}
			return c.give(cmd.Context(), api.Order{Verb: api.Pause, Cluster: c.cluster, Reason: reason, For: api.Span(length)}, "pause")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	cmd.Flags().DurationVar(&length, "for", 0, "resume by itself after this time")
	return cmd
}

func newResumeCommand(c *cli) *cobra.Command {
	return newSwitchCommand(c, api.Resume, "go on after a pause",
		`Go on after a pause. New fencing begins after the quiet period. A pause by the file
of control.pauseFile stands until that is gone: systemctl start fenced-resume.`)
}

func newArmCommand(c *cli) *cobra.Command {
	return newSwitchCommand(c, api.Arm, "let a cluster in mode observe be acted on (admin)",
		`Raise a cluster in mode observe to evaluate: from now on fenced acts. The order is
stored; a daemon that lost its state observes again.`)
}

func newDisarmCommand(c *cli) *cobra.Command {
	return newSwitchCommand(c, api.Disarm, "take arm back (admin)",
		`Take arm back: fenced judges and explains, and does not act.`)
}

// newSwitchCommand makes a verb that orders something of a cluster, or of all,
// and has nothing to wait for.
func newSwitchCommand(c *cli, v api.Verb, short, long string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   string(v) + " --reason WHY [--cluster NAME]",
		Short: short,
		Long:  long,
		Args:  wants(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.order(cmd.Context(), v, reason) },
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	return cmd
}

func (c *cli) order(ctx context.Context, v api.Verb, reason string) error {
	if err := needReason(reason, "fencectl "+string(v)); err != nil {
		return err
	}
	return c.give(ctx, api.Order{Verb: v, Cluster: c.cluster, Reason: reason}, string(v))
}
