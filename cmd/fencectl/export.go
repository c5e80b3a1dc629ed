package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

func newExportCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "export FILE",
		Short: "write the whole state of the daemon to a new file (admin)",
		Long: `Write the whole state to a new file: open runs, saved Nodes, orders, holds, pins and
history, for a cold standby or another engine. The file has no passwords, but it
names every host. The daemon keeps running; what it does later is not in the file.`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.export(cmd.Context(), args[0]) },
	}
}

// exported is the answer of export.
type exported struct {
	File string `json:"file"`
}

// export writes the state to a new file, and removes it again if that fails.
func (c *cli) export(ctx context.Context, path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		exit := &exitError{code: exitFailure, err: fmt.Errorf("make the file: %w", err)}
		if errors.Is(err, fs.ErrExist) {
			exit.hint = []string{"name another file: fencectl overwrites none"}
		}
		return exit
	}
	err = c.client().Export(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return requestError("export the state", errors.Join(err, os.Remove(path)))
	}
	return c.printValue(exported{File: path}, func() error {
		_, err := fmt.Fprintf(c.out, "the state is in %s\n", escapeControl(path))
		return err
	})
}
