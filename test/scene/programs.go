package scene

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fenced/fenced/test/rig"
)

// Programs are built binaries.
type Programs struct {
	Fenced, Fencectl string
	// Failpoints is fenced with the build tag failpoint; empty unless asked for.
	Failpoints string
}

// Build builds fenced and fencectl into dir as released, static, and with
// failpoints also the fenced that kills itself at them.
func Build(ctx context.Context, dir string, failpoints bool) (Programs, error) {
	p := Programs{Fenced: filepath.Join(dir, "fenced"), Fencectl: filepath.Join(dir, "fencectl")}
	if err := build(ctx, "./cmd/fenced", p.Fenced); err != nil {
		return p, err
	}
	if err := build(ctx, "./cmd/fencectl", p.Fencectl); err != nil {
		return p, err
	}
	if !failpoints {
		return p, nil
	}
	p.Failpoints = filepath.Join(dir, "fenced-failpoints")
	return p, BuildFailpoints(ctx, p.Failpoints)
}

// BuildFailpoints builds only the fenced that kills itself at failpoints, as the file out.
func BuildFailpoints(ctx context.Context, out string) error {
	return build(ctx, "./cmd/fenced", out, "failpoint")
}

func build(ctx context.Context, pkg, out string, tags ...string) error {
	root, err := rig.Root()
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-tags", strings.Join(append(tags, "grpcnotrace"), ","), "-o", out, pkg}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, strings.TrimSpace(string(text)))
	}
	return nil
}
