// Command warm builds the control plane for the tests and the demo, and the manager of the Cluster API and kubectl for the tests, if
// this user never built them, and says where they are. CI runs it first: a test that
// needs five silent minutes looks hung.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/fenced/fenced/test/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, build := range []func(context.Context, io.Writer) (string, error){rig.Binaries, rig.ClusterAPIBinary, rig.Kubectl} {
		dir, err := build(ctx, os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "warm:", err)
			os.Exit(1)
		}
		fmt.Println(dir)
	}
}
