package main

import (
	"github.com/fenced/fenced/internal/api"
	"github.com/spf13/cobra"
)

func newReleaseCommand(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "release NODE --reason WHY",
		Short: "end a node's hold, or its quarantine",
		Long: `End the hold of a node, or the quarantine of a host that was fenced again and
again; the runs before it count no more. The freeze of a BMC that lied is another
thing: fencectl bmc release.`,
		Args: wants("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needReason(reason, "fencectl release "+args[0]); err != nil {
				return err
			}
			return c.give(cmd.Context(), api.Order{Verb: api.Release, Cluster: c.cluster, Node: args[0], Reason: reason}, "release "+args[0])
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory)")
	return cmd
}
