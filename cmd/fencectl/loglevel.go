package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
)

func newLogLevelCommand(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL --reason WHY]",
		Short: "show how much fenced logs, or change it (admin)",
		Long: `Show how much fenced logs, or change it: debug, info, warn or error. The new level
applies at once, until fenced is reloaded or restarted; then log.level of fenced.yaml
applies again. The audit log lacks nothing at any level.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains(api.LogLevels, args[0]) {
				return usageError(fmt.Errorf("log-level takes one of %s, or nothing", strings.Join(api.LogLevels, ", ")), "fencectl log-level debug --reason WHY")
			}
			return nil
		},
		ValidArgs: api.LogLevels,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.showLogLevel(cmd.Context())
			}
			if err := needReason(reason, "fencectl log-level "+args[0]); err != nil {
				return err
			}
			return c.sendOrder(cmd.Context(), api.Order{Verb: api.LogLevel, Level: args[0], Reason: reason}, "log-level", waitFlags{}, nil)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the records (mandatory with LEVEL)")
	return cmd
}

// showLogLevel shows the level that applies now.
func (c *cli) showLogLevel(ctx context.Context) error {
	rep, err := c.client().Status(ctx)
	if err != nil {
		return requestError("read the log level", err)
	}
	body, err := json.Marshal(map[string]string{"logLevel": rep.Value.LogLevel})
	if err != nil {
		return fmt.Errorf("encode the log level: %w", err)
	}
	return c.print(append(body, '\n'), func() error {
		_, err := fmt.Fprintln(c.out, escapeControl(rep.Value.LogLevel))
		return err
	})
}
