package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

func newVersionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version of fencectl (fencectl status shows the daemon's)",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			body, err := json.Marshal(map[string]string{"version": version})
			if err != nil {
				return fmt.Errorf("encode the version: %w", err)
			}
			return c.print(append(body, '\n'), func() error {
				_, err := fmt.Fprintf(c.out, "fencectl %s\n", escapeControl(version))
				return err
			})
		},
	}
}
