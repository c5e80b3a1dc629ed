package scene

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

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
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of fenced: %w", err)
	}
	defer log.Close() // the child has its own copy
	d := &Daemon{cmd: exec.Command(program, s.flags()...), done: make(chan struct{})}
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// A killed test must not leave a fencer behind. Setpgid keeps Ctrl-C for us.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start fenced: %w", err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is asked of ProcessState
		close(d.done)
	}()
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

// PID is the number of the process.
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
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return strings.TrimSpace(string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))))
}
