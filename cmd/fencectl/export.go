package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func newExportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "export FILE",
		Short: "write the whole state of the daemon to a new file (admin)",
		Long: `Write the whole state to a new file: open runs, saved Nodes, orders, holds, pins and
history, for a cold standby or another engine. It holds no passwords, and names
every host. The daemon goes on meanwhile; what it does later is not in the file.`,
		Args: wants("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.export(cmd.Context(), args[0]) },
	}
}

// export leaves no file that is not whole.
func (c *cli) export(ctx context.Context, path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	err = c.client().Export(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return failed("export the state", errors.Join(err, os.Remove(path)))
	}
	return nil
}
