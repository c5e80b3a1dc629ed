// Command warm builds the control plane for the tests and the demo, if this
// user never built it, and says where it is. CI runs it first: a test that
// needs five silent minutes looks hung.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fenced/fenced/test/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := rig.Binaries(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "warm:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
