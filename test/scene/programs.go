package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
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
func Build(ctx context.Context, dir string, failpoints bool) (p Programs, err error) {
	if p.Fenced, err = Program(ctx, dir, "fenced"); err != nil {
		return p, err
	}
	if p.Fencectl, err = Program(ctx, dir, "fencectl"); err != nil || !failpoints {
		return p, err
	}
	p.Failpoints, err = Program(ctx, dir, Failpoints)
	return p, err
}

// Failpoints is the name of the fenced that kills itself at failpoints.
const Failpoints = "fenced-failpoints"

// Program builds one of the programs into dir, and returns its path. If FENCED_PROGRAMS names a folder, as in make test, the program is
// taken from there: else each package that runs it would link it again.
func Program(ctx context.Context, dir, name string) (string, error) {
	if made := os.Getenv("FENCED_PROGRAMS"); made != "" {
		path := filepath.Join(made, name)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("take %s from FENCED_PROGRAMS: %w", name, err)
		}
		return path, nil
	}
	path := filepath.Join(dir, name)
	if name == Failpoints {
		return path, build(ctx, "", "./cmd/fenced", path, "failpoint")
	}
	return path, build(ctx, "", "./cmd/"+name, path)
}

// BuildChanged builds fenced with files replaced, as the overlay for go build says; nothing of it is in the tree.
func BuildChanged(ctx context.Context, out, overlay string) error {
	return build(ctx, "-overlay="+overlay, "./cmd/fenced", out)
}

// build builds a program, with one more flag if there is one.
func build(ctx context.Context, flag, pkg, out string, tags ...string) error {
	root, err := rig.Root()
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-tags", strings.Join(append(tags, "grpcnotrace"), ","), "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", out}
	if flag != "" {
		args = append(args, flag)
	}
	args = append(args, pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, strings.TrimSpace(string(text)))
	}
	return nil
}

// startTime is how long a fenced may take until its socket answers; a longer
// start means that it hangs.
const startTime = 5 * time.Minute

// Daemon is a running fenced.
type Daemon struct {
	cmd    *exec.Cmd
	done   chan struct{} // closed when it ended
	wanted atomic.Bool   // its end was requested, or seen by Wait
}

// StartDaemon starts the released fenced, and waits for its socket.
func (s *Scene) StartDaemon(ctx context.Context) (*Daemon, error) {
	d, err := s.Launch(s.opts.Programs.Fenced)
	if err != nil {
		return nil, err
	}
	return d, s.WaitSocket(ctx, d)
}

// Launch starts a fenced without waiting for it; env is added to the environment.
func (s *Scene) Launch(program string, env ...string) (*Daemon, error) {
	d := &Daemon{cmd: exec.Command(program, s.flags()...), done: make(chan struct{})}
	d.cmd.Env = append(os.Environ(), env...)
	if err := rig.RunLogged(d.cmd, "fenced", s.logFile(), os.O_APPEND, d.done); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.daemons = append(s.daemons, d)
	s.mu.Unlock()
	return d, nil
}

// WaitSocket waits until the control socket accepts connections. It returns an
// error if the daemon ends before.
func (s *Scene) WaitSocket(ctx context.Context, d *Daemon) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		if conn, err := net.Dial("unix", s.Socket()); err == nil {
			return conn.Close()
		}
		select {
		case <-d.done:
			return fmt.Errorf("start fenced: it ended (%s)\n%s", d.cmd.ProcessState, s.LogTail(15))
		case <-ctx.Done():
			return fmt.Errorf("start fenced: no socket: %w\n%s", ctx.Err(), s.LogTail(15))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Done is closed when the process has ended.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// Kill kills the daemon with SIGKILL and waits for its end.
func (d *Daemon) Kill() {
	d.wanted.Store(true)
	_ = d.cmd.Process.Kill() // an error says only that it is gone already
	<-d.done
}

// Terminate sends SIGTERM to the daemon, as systemd does, and returns its exit
// status.
func (d *Daemon) Terminate(ctx context.Context) (int, error) {
	d.wanted.Store(true)
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("send TERM to fenced: %w", err)
	}
	return d.Wait(ctx)
}

// Wait waits for the end of the daemon and returns its exit status; -1 if a
// signal ended it.
func (d *Daemon) Wait(ctx context.Context) (int, error) {
	select {
	case <-d.done:
		d.wanted.Store(true)
		return d.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the end of fenced: %w", ctx.Err())
	}
}

// Killed reports whether SIGKILL ended the process; it must have ended.
func (d *Daemon) Killed() bool {
	status, ok := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (s *Scene) logFile() string { return s.path("fenced.log") }

// LogTail is the end of the log of all daemons of the scene.
func (s *Scene) LogTail(lines int) string {
	text, err := os.ReadFile(s.logFile())
	if errors.Is(err, os.ErrNotExist) {
		return "no fenced ran"
	}
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(rig.LastLines(string(text), lines))
}

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

// Status asks the daemon as fencectl does; so do Explain and Timeline. Tests ask again and again until something has happened, and a process for
// each question would cost more than the daemon.
func (s *Scene) Status(ctx context.Context) (wire.Status, error) {
	r, err := api.New(s.Socket()).Status(ctx)
	return r.Value, err
}

// Explain asks about a node.
func (s *Scene) Explain(ctx context.Context, node string) (wire.Explanation, error) {
	r, err := api.New(s.Socket()).Explain(ctx, "", node)
	return r.Value, err
}

func (s *Scene) Timeline(ctx context.Context, node string) ([]wire.RunRecord, error) {
	r, err := api.New(s.Socket()).NodeTimeline(ctx, "", node)
	return r.Value.Runs, err
}

// ExplainMachine is `fencectl explain --machine NAMESPACE/NAME -o json`.
func (s *Scene) ExplainMachine(ctx context.Context, machine string) (wire.Explanation, error) {
	return answer[wire.Explanation](ctx, s, "explain", "--machine", machine)
}

// Plan is `fencectl plan -o json`.
func (s *Scene) Plan(ctx context.Context) (wire.Plan, error) {
	return answer[wire.Plan](ctx, s, "plan")
}

// Coverage is `fencectl check-config -o json`.
func (s *Scene) Coverage(ctx context.Context) (wire.Coverage, error) {
	return answer[wire.Coverage](ctx, s, "check-config")
}

// BMCs is `fencectl bmc VERB [NODE] -o json`, of a verb that looks: list, test or
// audit.
func (s *Scene) BMCs(ctx context.Context, verb string, node ...string) ([]wire.BMC, error) {
	b, err := answer[wire.BMCs](ctx, s, append([]string{"bmc", verb}, node...)...)
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

// Screen is what a person saw of a fencectl on a terminal of 80x24.
type Screen struct {
	// Asked is everything up to the question, without colours; "" if nothing was asked.
	Asked string
	// All is everything, without colours. A line that was drawn again is there as often.
	All  string
	Exit int
}

// terminalCodes are what a terminal does not show: colours and movements of the cursor.
var terminalCodes = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// Terminal runs the built fencectl on a terminal of 80x24, and types a line when it asks for one
// with question; with none if that is empty.
func (s *Scene) Terminal(ctx context.Context, question, line string, args ...string) (Screen, error) {
	cmd := exec.CommandContext(ctx, s.opts.Programs.Fencectl, append([]string{"--socket", s.Socket()}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		return Screen{}, fmt.Errorf("run fencectl %s on a terminal: %w", strings.Join(args, " "), err)
	}
	defer tty.Close()
	screen := record(tty)
	out := Screen{}
	if question != "" {
		out.Asked = screen.await(question)
	}
	if out.Asked != "" {
		if _, err := tty.WriteString(line + "\n"); err != nil {
			return out, fmt.Errorf("type at fencectl: %w", err)
		}
	}
	<-screen.ended
	err = cmd.Wait()
	out.All, out.Exit = screen.text(), cmd.ProcessState.ExitCode()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		return out, fmt.Errorf("run fencectl %s: %w\n%s", strings.Join(args, " "), err, out.All)
	}
	return out, nil
}

// recorder keeps what a terminal was sent.
type recorder struct {
	ended chan struct{} // closed when nobody has the other end open any more

	mu   sync.Mutex
	sent bytes.Buffer
}

// record reads a terminal until its end.
func record(tty io.Reader) *recorder {
	r := &recorder{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			r.mu.Lock()
			r.sent.Write(buf[:n])
			r.mu.Unlock()
			if err != nil { // EIO is the end
				return
			}
		}
	}()
	return r
}

// await returns what stands on the terminal as soon as text does, or "" if that never comes.
func (r *recorder) await(text string) string {
	for {
		ended := false
		select {
		case <-r.ended:
			ended = true
		case <-time.After(10 * time.Millisecond):
		}
		if shown := r.text(); strings.Contains(shown, text) {
			return shown
		}
		if ended {
			return ""
		}
	}
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return terminalCodes.ReplaceAllString(strings.ReplaceAll(r.sent.String(), "\r", ""), "")
}
