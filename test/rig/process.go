package rig

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one program of the control plane.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // the file with the output
	done chan struct{} // closed when the process has ended
	want atomic.Bool   // kill ended the process
}

// startProcess runs program with args, and with env in addition to the environment. Its output is appended to
// name.log in dir, so that a restarted API server has one log.
func startProcess(dir, program string, args []string, env ...string) (*process, error) {
	p := &process{name: filepath.Base(program), done: make(chan struct{})}
	p.log = filepath.Join(dir, p.name+".log")
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir = dir
	// A control plane of a test runs for a minute: memory costs less than garbage collection.
	p.cmd.Env = append(append(os.Environ(), "GOGC=400"), env...)
	return p, RunLogged(p.cmd, p.name, p.log, os.O_APPEND, p.done)
}

// RunLogged starts a program with its output in a log, and closes done when it has ended. how is whether the log is
// continued (os.O_APPEND) or begins anew (os.O_TRUNC).
func RunLogged(cmd *exec.Cmd, name, log string, how int, done chan<- struct{}) error {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|how, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer f.Close() // the child has a copy of its own
	if cmd.Stderr = f; cmd.Stdout == nil {
		cmd.Stdout = f
	}
	// The kernel kills the child when this process ends, even if a test is killed.
	// Strictly it does so when the thread that started the child ends, and Go ends
	// a thread only if a goroutine locked to it returns. Setpgid keeps the child
	// from an operator's Ctrl-C.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // its log says how it ended
		close(done)
	}()
	return nil
}

// kill ends the process with SIGKILL, and waits for the end. The data is deleted anyway, an API server
// takes up to a minute to end gracefully, and a crash is the harder case for a test.
func (p *process) kill() {
	if p == nil {
		return
	}
	p.want.Store(true)
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.done
}

// died returns an error with the end of the log if the process ended by itself.
func (p *process) died() error {
	select {
	case <-p.done:
		if p.want.Load() {
			return nil
		}
		return fmt.Errorf("%s ended (%s)%s", p.name, p.cmd.ProcessState, p.tail())
	default:
		return nil
	}
}

// tail returns the end of the log, for an error.
func (p *process) tail() string {
	b, err := ReadEnd(p.log, 16<<10)
	if err != nil {
		return ""
	}
	return "; the end of its log:\n" + LastLines(string(b), 25)
}

// ReadEnd reads at most so many bytes of the end of a file.
func ReadEnd(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(-limit, io.SeekEnd); err != nil && !errors.Is(err, syscall.EINVAL) {
		return nil, err // EINVAL: the file is shorter, read it from its start
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Memory is a line of /proc/PID/status in bytes, as VmHWM, the most memory that a process ever had.
func Memory(pid int, key string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == key+":" && fields[2] == "kB" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}

// freezeTime limits the wait until a stopped process has no running thread.
const freezeTime = 2 * time.Minute

// freeze stops the process, and returns when none of its threads runs.
func (p *process) freeze() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(freezeTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if stopped(p.cmd.Process.Pid) {
			return nil
		}
	}
	return fmt.Errorf("stop %s: it runs on after %s", p.name, freezeTime)
}

// stopped reports whether no thread of a process runs. The state is the first
// word after the name in parentheses, proc_pid_stat(5).
func stopped(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread ended
		}
		end := strings.LastIndex(string(text), ") ")
		if err != nil || end < 0 || !strings.HasPrefix(string(text)[end+2:], "T") {
			return false
		}
	}
	return true
}

func (p *process) thaw() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// port is a loopback port that stays reserved. The socket is bound with
// SO_REUSEPORT and never listens. A program of the same user can listen on the
// port if it also uses SO_REUSEPORT; others cannot, and the kernel gives the port
// to no outgoing connection. While no program listens, clients are refused at
// once. So an API server can stop and restart on its port.
type port struct {
	fd     int
	host   netip.Addr
	number int
}

func reservePort() (*port, error) { return reservePortAt(netip.AddrFrom4([4]byte{127, 0, 0, 1})) }

func reservePortAt(host netip.Addr) (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("socket", err))
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("setsockopt", err))
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: host.As4()}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("bind", err))
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("getsockname", err))
	}
	return &port{fd: fd, host: host, number: sa.(*unix.SockaddrInet4).Port}, nil
}

func (p *port) address() string { return fmt.Sprintf("%s:%d", p.host, p.number) }

func (p *port) release() {
	if p != nil {
		_ = unix.Close(p.fd)
	}
}

// workDir is the directory in which programs write. It is removed at the end, except logs that are
// kept.
type workDir struct {
	path string
	keep atomic.Bool
}

// make creates the directory in parent, or in the system's temporary directory.
func (d *workDir) make(parent, prefix string) (err error) {
	d.path, err = os.MkdirTemp(parent, prefix)
	return err
}

func (d *workDir) keepLogs() string {
	d.keep.Store(true)
	return d.path
}

// clear removes everything, or everything but the logs. Errors are harmless in a
// temporary directory.
func (d *workDir) clear() {
	switch {
	case d.path == "":
	case d.keep.Load():
		removeAllButLogs(d.path)
	default:
		_ = os.RemoveAll(d.path)
	}
}

func removeAllButLogs(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			removeAllButLogs(path)
			_ = os.Remove(path) // this fails if a log is in it
		case !strings.HasSuffix(e.Name(), ".log"):
			_ = os.Remove(path)
		}
	}
}
