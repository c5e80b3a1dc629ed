// Command warm builds the control plane for the tests and the demo, and the manager of the Cluster API, kubectl and helm for the tests, if
// this user never built them, and says where they are. CI runs it first: a test that
// needs five silent minutes looks hung. With a directory it puts the programs of a control plane there, and builds nothing else.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/fenced/fenced/test/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := warm
	if len(os.Args) > 1 {
		run = func(ctx context.Context) error { return gather(ctx, os.Args[1]) }
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "warm:", err)
		os.Exit(1)
	}
}

func warm(ctx context.Context) error {
	for _, build := range []func(context.Context, io.Writer) (string, error){rig.Binaries, rig.ClusterAPIBinary, rig.Kubectl, rig.Helm} {
		dir, err := build(ctx, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(dir)
	}
	return nil
}

// gather copies the programs of a control plane into dir.
func gather(ctx context.Context, dir string) error {
	paths, err := rig.Programs(ctx, []string{os.Getenv("KUBEBUILDER_ASSETS")}, os.Stderr)
	if err != nil {
		return err
	}
	for name, path := range paths {
		if err := put(path, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("copy %s: %w", path, err)
		}
	}
	return nil
}

func put(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close() // the error of the copy is the one to know
		return err
	}
	return out.Close()
}
