package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a program that is measured, alone, by the kernel's account.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it ended
}

// startProcess starts a program that says all it has to say in a log.
func startProcess(dir, name, program string, args ...string) (*process, error) {
	p := newProcess(dir, name, program, args...)
	return p, p.start()
}

// newProcess prepares one; its standard output goes to the log, too, unless the
// caller wants it.
func newProcess(dir, name, program string, args ...string) *process {
	return &process{name: name, cmd: exec.Command(program, args...), log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
}

func (p *process) start() error {
	log, err := os.Create(p.log)
	if err != nil {
		return fmt.Errorf("make the log of %s: %w", p.name, err)
	}
	defer log.Close() // the child has its own copy
	p.cmd.Stderr = log
	if p.cmd.Stdout == nil {
		p.cmd.Stdout = log
	}
	// A killed measurement must not leave a fencer behind. Setpgid keeps Ctrl-C for us.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log; that it ended is what we need
		close(p.done)
	}()
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the program as systemd does, and kills one that does not end.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error says only that it is gone already
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		p.kill()
		<-p.done
	}
}

func (p *process) kill() { _ = p.cmd.Process.Kill() } // an error says only that it is gone already

// logTail is the end of the log, to go behind an error.
func (p *process) logTail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(-4<<10, io.SeekEnd); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err.Error() // EINVAL: it is shorter
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text))
}
