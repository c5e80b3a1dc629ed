package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/fenced/fenced/internal/api"
)

// Result is what a fencectl said and how it ended.
type Result struct {
	Stdout, Stderr string
	Exit           int
}

// Fencectl runs the built fencectl against the scene's daemon.
func (s *Scene) Fencectl(ctx context.Context, args ...string) (Result, error) {
	cmd := exec.CommandContext(ctx, s.opts.Programs.Fencectl, append([]string{"--socket", s.Socket()}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := Result{Stdout: out.String(), Stderr: strings.TrimSpace(errs.String()), Exit: cmd.ProcessState.ExitCode()}
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		return r, fmt.Errorf("run fencectl %s: %w", strings.Join(args, " "), err)
	}
	return r, nil
}

// Status is `fencectl status -o json`.
func (s *Scene) Status(ctx context.Context) (api.Status, error) {
	return answer[api.Status](ctx, s, "status")
}

// Explain is `fencectl explain NODE -o json`.
func (s *Scene) Explain(ctx context.Context, node string) (api.Explanation, error) {
	return answer[api.Explanation](ctx, s, "explain", node)
}

// ExplainMachine is `fencectl explain --machine NAMESPACE/NAME -o json`.
func (s *Scene) ExplainMachine(ctx context.Context, machine string) (api.Explanation, error) {
	return answer[api.Explanation](ctx, s, "explain", "--machine", machine)
}

// Timeline is `fencectl timeline NODE -o json`.
func (s *Scene) Timeline(ctx context.Context, node string) ([]api.RunRecord, error) {
	t, err := answer[api.Timeline](ctx, s, "timeline", node)
	return t.Runs, err
}

// Plan is `fencectl plan -o json`.
func (s *Scene) Plan(ctx context.Context) (api.Plan, error) {
	return answer[api.Plan](ctx, s, "plan")
}

// Coverage is `fencectl check-config -o json`.
func (s *Scene) Coverage(ctx context.Context) (api.Coverage, error) {
	return answer[api.Coverage](ctx, s, "check-config")
}

// BMCs is `fencectl bmc VERB [NODE] -o json`, of a verb that looks: list, test or
// audit.
func (s *Scene) BMCs(ctx context.Context, verb string, node ...string) ([]api.BMC, error) {
	b, err := answer[api.BMCs](ctx, s, append([]string{"bmc", verb}, node...)...)
	return b.BMCs, err
}

// answer decodes the JSON of a verb that only looks. The exit status of a
// degraded daemon is no error of the question.
func answer[T any](ctx context.Context, s *Scene, args ...string) (v T, err error) {
	r, err := s.Fencectl(ctx, append(args, "-o", "json")...)
	if err != nil {
		return v, err
	}
	if r.Exit != 0 && r.Exit != 2 {
		return v, fmt.Errorf("fencectl %s: exit status %d: %s", strings.Join(args, " "), r.Exit, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
		return v, fmt.Errorf("decode the answer of fencectl %s: %w", strings.Join(args, " "), err)
	}
	return v, nil
}
