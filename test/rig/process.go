package rig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// process is one program of the control plane.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // the file with the output
	done chan struct{} // closed when the process has ended
	want atomic.Bool   // kill ended the process
}

// startProcess runs program with args. Its output is appended to name.log in
// dir, so that a restarted API server has one log.
func startProcess(dir, program string, args []string) (*process, error) {
	p := &process{name: filepath.Base(program), done: make(chan struct{})}
	p.log = filepath.Join(dir, p.name+".log")
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer f.Close() // the child has a copy of its own
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir = dir
	// A control plane of a test runs for a minute: memory costs less than garbage collection.
	p.cmd.Env = append(os.Environ(), "GOGC=400")
	p.cmd.Stdout, p.cmd.Stderr = f, f
	// The kernel kills the child when this process ends, even if a test is killed.
	// Strictly it does so when the thread that started the child ends, and Go ends
	// a thread only if a goroutine locked to it returns. Setpgid keeps the child
	// from an operator's Ctrl-C.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		_ = p.cmd.Wait() // its log says how it ended
		close(p.done)
	}()
	return p, nil
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
	b, err := readEnd(p.log, 16<<10)
	if err != nil {
		return ""
	}
	return "; the end of its log:\n" + lastLines(string(b), 25)
}

func readEnd(path string, limit int64) ([]byte, error) {
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
