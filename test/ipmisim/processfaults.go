package ipmisim

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

var _ Faults = (*process)(nil)

// IgnoreOff makes the BMC accept a power off and do nothing.
func (b *process) IgnoreOff(ignore bool) error { return b.flag("power.ignore-off", ignore, "") }

// LieOff makes the BMC say off whatever the host is.
func (b *process) LieOff(lie bool) error { return b.flag("power.lie-off", lie, "") }

// LateOff makes the host go off d after the command.
func (b *process) LateOff(d time.Duration) error {
	return b.flag("power.late-off", d > 0, seconds(d))
}

// BackOn makes the host come on again d after it went off.
func (b *process) BackOn(d time.Duration) error { return b.flag("power.back-on", d > 0, seconds(d)) }

// Slow makes the BMC work on each chassis command for d, and on one after the other:
// it does nothing else meanwhile. virtualbmc does so while libvirt is slow.
func (b *process) Slow(d time.Duration) error { return b.flag("power.slow", d > 0, seconds(d)) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f\n", d.Seconds()) }

// flag sets or clears a switch of chassis.sh.
func (b *process) flag(name string, set bool, text string) error {
	if set {
		return os.WriteFile(b.path(name), []byte(text), 0o600)
	}
	if err := os.Remove(b.path(name)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Hang stops the process where it is, or lets it go on; what came meanwhile is
// answered then.
func (b *process) Hang(hang bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	signal := syscall.SIGCONT
	if hang {
		signal = syscall.SIGSTOP
	}
	return b.running.Signal(signal)
}

// Restart ends the process and starts another at the same address.
func (b *process) Restart() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kill()
	if err := b.start(); err != nil {
		return fmt.Errorf("restart %s: %w", b.program, err)
	}
	return nil
}
