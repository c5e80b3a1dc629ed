package fenceagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	maxOutput = 64 << 10
	// drainTime is how long output is read after the agent ended: a process that
	// left its group may hold the pipe open. On a busy host some of this time is
	// needed to read what the agent has written.
	drainTime = 2 * time.Second
)

// searchPath is where agents may be installed, and who must own them.
type searchPath struct {
	dirs  []string
	owner uint32
}

// systemPath has the directories to which packages install agents.
var systemPath = searchPath{dirs: []string{"/usr/sbin", "/usr/bin", "/sbin"}}

var agentName = regexp.MustCompile(`^fence_[a-z0-9_]+$`)

// file is an agent on disk. A changed file is another key.
type file struct {
	path     string // as it is run: some agents depend on the name of their command
	resolved string
	size     int64
	modified int64
	inode    uint64
}

// find finds the agent. A daemon that usually runs as root will run it with the
// devices' passwords, so only a file that root alone can change is accepted.
func (p searchPath) find(name string) (file, error) {
	if !agentName.MatchString(name) {
		return file{}, fmt.Errorf("%q is not the name of a fence agent, like fence_apc_snmp", name)
	}
	for _, dir := range p.dirs {
		path := filepath.Join(dir, name)
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return file{}, fmt.Errorf("find the fence agent: %w", err)
		}
		return p.check(path)
	}
	return file{}, fmt.Errorf("the fence agent %s is not installed in %s; install the package that has it (fence-agents)",
		name, strings.Join(p.dirs, ", "))
}

func (p searchPath) check(path string) (file, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return file{}, fmt.Errorf("resolve %s: %w", path, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return file{}, fmt.Errorf("check %s: %w", resolved, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return file{}, fmt.Errorf("%s is not an executable file", resolved)
	}
	for _, guarded := range []string{resolved, filepath.Dir(resolved), filepath.Dir(path)} {
		if err := p.checkOwner(guarded); err != nil {
			return file{}, err
		}
	}
	return file{
		path: path, resolved: resolved, size: info.Size(), modified: info.ModTime().UnixNano(),
		inode: info.Sys().(*syscall.Stat_t).Ino, // Linux: always this type
	}, nil
}

// checkOwner rejects a file or directory that another user could change.
func (p searchPath) checkOwner(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != p.owner && owner != 0 {
		return fmt.Errorf("%s is owned by user %d, not by root; it was not run", path, owner)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is writable by users other than root; it was not run", path)
	}
	return nil
}

// command is one run of an agent.
type command struct {
	path  string
	args  []string // never contains a secret
	stdin []byte
	limit int // bytes of each output; more kills the agent
}

// result is how an agent ended by itself.
type result struct {
	code           int
	stdout, stderr []byte
	agent          metadata // of an action
}

// startError: the agent was not started, so it cannot have switched.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }

func (e *startError) Unwrap() error { return e.err }

// run starts the agent in a process group of its own. It kills what is left of
// that group, both when ctx ends and when the agent ends by itself.
func run(ctx context.Context, c command) (result, error) {
	if err := bmc.Over(ctx, time.Now()); err != nil { // I19
		return result{}, &startError{err}
	}
	flood := make(chan struct{})
	var once sync.Once
	full := func() { once.Do(func() { close(flood) }) }
	stdout, stderr := &boundedBuffer{limit: c.limit, full: full}, &boundedBuffer{limit: c.limit, full: full}
	cmd := exec.Command(c.path, c.args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.stdin), stdout, stderr
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = drainTime
	if err := cmd.Start(); err != nil {
		return result{}, &startError{fmt.Errorf("start the agent: %w", err)}
	}
	why := supervise(ctx, cmd.Process.Pid, flood)
	err := cmd.Wait()
	if why != nil {
		return result{}, why
	}
	end := result{code: cmd.ProcessState.ExitCode(), stdout: stdout.bytes(), stderr: stderr.bytes()}
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case exited && end.code < 0:
		return result{}, fmt.Errorf("the agent was ended by a signal: %s", exit.ProcessState)
	case err != nil && !exited && !errors.Is(err, exec.ErrWaitDelay):
		return result{}, fmt.Errorf("run the agent: %w", err)
	}
	return end, nil
}

// supervise waits until the process ended, kills its group, and returns why it
// did not end by itself. It reaps the process only after it killed the group, so
// the process number cannot have been reused.
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
	_ = unix.Kill(-pid, unix.SIGKILL) // the group may be empty
	<-ended
	return why
}

// boundedBuffer keeps the first limit bytes, and calls full when more arrive.
type boundedBuffer struct {
	limit int
	full  func()

	mu  sync.Mutex // output may still be written while it is read
	buf []byte
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.buf)+len(p) > b.limit {
		b.full()
	} else {
		b.buf = append(b.buf, p...)
	}
	return len(p), nil
}

func (b *boundedBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf
}

// lastMessage is the last message of the agent.
func (e result) lastMessage() string {
	for _, text := range [][]byte{e.stderr, e.stdout} {
		if s := lastLine(text); s != "" {
			return s
		}
	}
	return "it said nothing"
}

// lastLine is the last line with a message: after an error about parameters,
// ClusterLabs' agents print a hint to their help.
func lastLine(text []byte) string {
	var last string
	for line := range strings.Lines(string(text)) {
		if s := strings.TrimSpace(line); s != "" && !strings.HasSuffix(s, "Please use '-h' for usage") {
			last = s
		}
	}
	return last
}
