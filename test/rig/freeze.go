package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

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

// thaw continues the process.
func (p *process) thaw() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}
