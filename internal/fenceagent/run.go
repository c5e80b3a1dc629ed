package fenceagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxOutput = 64 << 10
	// drain is how long output is still read after the agent ended: somebody that
	// left its process group may hold the pipe. A busy host needs some of it to read
	// what the agent has written.
	drain = 2 * time.Second
)

// command is one run of an agent.
type command struct {
	path  string
	args  []string // never a secret
	stdin []byte
	limit int // bytes of each output; more ends the run
}

// ending is how a run ended by itself.
type ending struct {
	code           int
	stdout, stderr []byte
}

// startError: the agent was not started, so it cannot have done anything.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// run starts the agent in a process group of its own, and leaves nothing of that
// group behind: not at the end of ctx, and not when the agent ends by itself.
func run(ctx context.Context, c command) (ending, error) {
	if err := ctx.Err(); err != nil {
		return ending{}, &startError{err}
	}
	flood := make(chan struct{})
	var once sync.Once
	full := func() { once.Do(func() { close(flood) }) }
	stdout, stderr := &bounded{limit: c.limit, full: full}, &bounded{limit: c.limit, full: full}
	cmd := exec.Command(c.path, c.args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.stdin), stdout, stderr
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = drain
	if err := cmd.Start(); err != nil {
		return ending{}, &startError{fmt.Errorf("start the agent: %w", err)}
	}
	why := supervise(ctx, cmd.Process.Pid, flood)
	err := cmd.Wait()
	if why != nil {
		return ending{}, why
	}
	end := ending{code: cmd.ProcessState.ExitCode(), stdout: stdout.bytes(), stderr: stderr.bytes()}
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case exited && end.code < 0:
		return ending{}, fmt.Errorf("the agent was ended by a signal: %s", exit.ProcessState)
	case err != nil && !exited && !errors.Is(err, exec.ErrWaitDelay):
		return ending{}, fmt.Errorf("run the agent: %w", err)
	}
	return end, nil
}

// supervise waits until the process ended, kills its group, and says why it did
// not end by itself. The process is not reaped before the group is killed: its
// number cannot have gone to somebody else.
func supervise(ctx context.Context, pid int, flood <-chan struct{}) (why error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		why = fmt.Errorf("the agent did not end in time and was killed: %w", ctx.Err())
	case <-flood:
		why = errors.New("the agent wrote too much output and was killed")
	}
	_ = unix.Kill(-pid, unix.SIGKILL) // the group may have nobody left
	<-ended
	return why
}

// bounded keeps the first limit bytes, and calls full when more come.
type bounded struct {
	limit int
	full  func()

	mu  sync.Mutex // a late copy may still write when the output is taken
	buf []byte
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.buf)+len(p) > b.limit {
		b.full()
	} else {
		b.buf = append(b.buf, p...)
	}
	return len(p), nil
}

func (b *bounded) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf
}

// complaint is the last thing the agent said, for people.
func (e ending) complaint() string {
	for _, text := range [][]byte{e.stderr, e.stdout} {
		if s := lastLine(text); s != "" {
			return s
		}
	}
	return "it said nothing"
}

// lastLine is the last line with something to say: ClusterLabs' agents end a
// complaint about parameters with a pointer to their help.
func lastLine(text []byte) string {
	var last string
	for line := range strings.Lines(string(text)) {
		if s := strings.TrimSpace(line); s != "" && !strings.HasSuffix(s, "Please use '-h' for usage") {
			last = s
		}
	}
	return last
}
