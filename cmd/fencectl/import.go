package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/spf13/cobra"
)

func newImportCommand(c *cli) *cobra.Command {
	var config string
	var set []string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "read an export into an empty state (stop the daemon first)",
		Long: `Read a file of fencectl export into the state that fenced.yaml names, by running
fenced --import. The state must be empty and the daemon stopped. When fenced starts,
it continues the open runs. Before that, stop the fenced that wrote the file, and
make sure that it never starts again.`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.importFile(cmd.Context(), args[0], config, set)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file of fenced, instead of its own default")
	cmd.Flags().StringArrayVar(&set, "set", nil, "override one of its keys, KEY=VALUE (repeatable)")
	return cmd
}

func (c *cli) importFile(ctx context.Context, path, config string, set []string) error {
	args := []string{"--import", path}
	if config != "" {
		args = append(args, "--config", config)
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	program, err := daemonProgram()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = c.out, c.errs
	err = cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return &exitError{code: exitFailure} // fenced said why
	}
	if err != nil {
		return fmt.Errorf("run fenced: %w", err)
	}
	return nil
}
