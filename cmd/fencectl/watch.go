package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/wire"
)

// watchInterval is how often -w looks when nothing happens.
const watchInterval = 2 * time.Second

// watchFlag is -w of a verb that shows something.
type watchFlag struct{ watch bool }

func (w *watchFlag) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.watch, "watch", "w", false, "show it again whenever something happens")
}

// run shows once, or again and again. It ends with the exit status of what it showed last.
func (w *watchFlag) run(ctx context.Context, c *cli, show func(context.Context) error) error {
	if !w.watch {
		return show(ctx)
	}
	wake := changes(ctx, c.client(), func(wire.Event) bool { return true })
	for {
		if c.isTable() && isTerminal(c.out) {
			fmt.Fprint(c.out, "\x1b[H\x1b[2J")
		}
		last := show(context.WithoutCancel(ctx))
		if exit, ok := errors.AsType[*exitError](last); last != nil && (!ok || exit.code != exitDegraded) {
			return last
		}
		if !await(ctx, wake, watchInterval) {
			return last
		}
	}
}
