package ipmisim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fenced/fenced/test/port"
)

// process is a BMC that runs as a process of its own; a script and a few files in
// a directory are its chassis.
type process struct {
	addr    string
	dir     string
	program string // for messages
	command func() []string
	life    context.Context

	mu      sync.Mutex
	running *os.Process
	ended   <-chan struct{} // closed when the process has ended
	kill    func()          // ends the process, and waits for it
	stopped bool            // by Stop
}

// launch starts program at the address of o in a directory of its own, until Stop
// or the end of ctx. prepare fills the directory for one address; command is what
// runs there.
func launch(ctx context.Context, program string, o Options, prepare func(dir, addr string) error, command func(dir string) []string) (*process, error) {
	dir, err := os.MkdirTemp("", "ipmisim-")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	b := &process{dir: dir, program: program, command: func() []string { return command(dir) }, life: ctx, kill: func() {}}
	for try := 1; ; try++ {
		if b.addr, err = freePort(o.Addr); err == nil {
			err = prepare(dir, b.addr)
		}
		if err == nil {
			err = b.start()
		}
		if err == nil {
			return b, nil
		}
		if try == portTries || !errors.Is(err, errPortTaken) {
			b.Stop()
			return nil, fmt.Errorf("start %s: %w", program, err)
		}
		b.kill()
	}
}

// These programs cannot choose a port themselves. One that was free may be somebody else's
// before it is bound: then the program ends, and another port is tried.
const portTries = 5

var errPortTaken = errors.New("somebody else took the port")

// freePort finds a free UDP port, unless the address has one.
func freePort(addr string) (string, error) {
	host, number, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return "", err
	case number == "0":
		return port.Free("udp", host)
	}
	return addr, port.Try("udp", addr)
}

// start starts a new process and waits until it answers.
func (b *process) start() error {
	life, cancel := context.WithCancel(b.life)
	command := b.command()
	cmd := exec.CommandContext(life, command[0], command[1:]...)
	// A killed test must not leave simulators behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	log, err := os.Create(b.path("log"))
	if err != nil {
		cancel()
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		cancel()
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // killed, or its log tells why
	}()
	b.running, b.ended, b.kill = cmd.Process, ended, func() {
		cancel()
		<-ended
	}
	return b.ready()
}

// authCapabilities is Get Channel Authentication Capabilities in IPMI 1.5
// framing: the one question a BMC answers to anybody.
const authCapabilities = "\x06\x00\xff\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09\x20\x18\xc8\x81\x00\x38\x8e\x04\xb5"

// answerTime is how long the program may take until it answers; only one that hangs takes
// so long.
const answerTime = 2 * time.Minute

// ready waits until the simulator answers, and not somebody else at its address.
func (b *process) ready() error {
	conn, err := net.Dial("udp", b.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 64)
	for end := time.Now().Add(answerTime); time.Now().Before(end) && b.life.Err() == nil; {
		if b.bound() {
			if _, err := conn.Write([]byte(authCapabilities)); err == nil {
				_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				if _, err := conn.Read(buf); err == nil {
					return nil
				}
			}
		}
		select {
		case <-b.ended:
			return fmt.Errorf("%s: %w; it wrote: %s", b.addr, errPortTaken, b.log())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("no answer on %s; it wrote: %s", b.addr, b.log())
}

// Ended is what the process wrote, if it ended although nobody stopped it.
func (b *process) Ended() (log string, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.ended:
		return b.log(), !b.stopped
	default:
		return "", false
	}
}

// log is what the process wrote; an unreadable one says nothing.
func (b *process) log() string {
	text, _ := os.ReadFile(b.path("log"))
	return string(text)
}

// bound says whether the process has a UDP socket with its port. The kernel goes through all
// that it knows about UDP for its table, so that is asked only of a process with a socket.
func (b *process) bound() bool {
	proc := fmt.Sprintf("/proc/%d/", b.running.Pid)
	sockets := map[string]bool{}
	fds, _ := os.ReadDir(proc + "fd")
	for _, fd := range fds {
		if to, _ := os.Readlink(proc + "fd/" + fd.Name()); strings.HasPrefix(to, "socket:[") {
			sockets[to] = true
		}
	}
	if len(sockets) == 0 {
		return false
	}
	_, port, _ := net.SplitHostPort(b.addr)
	n, _ := strconv.Atoi(port) // the kernel gave it
	table, _ := os.ReadFile(proc + "net/udp")
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // local address second, inode tenth
		if len(f) >= 10 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && sockets["socket:["+f[9]+"]"] {
			return true
		}
	}
	return false
}

func (b *process) path(name string) string { return filepath.Join(b.dir, name) }

// Addr is the host:port of the BMC.
func (b *process) Addr() string { return b.addr }

// Power says whether the host is truly on.
func (b *process) Power() bool {
	on, err := b.Source(context.Background())
	return on || err != nil
}

// Source reads the file that is the host's power.
func (b *process) Source(ctx context.Context) (bool, error) {
	text, err := os.ReadFile(b.path("power"))
	if err != nil {
		return false, fmt.Errorf("read power of simulated host: %w", err)
	}
	return string(text) != "0\n", ctx.Err()
}

// SetPower switches the host behind the BMC's back.
func (b *process) SetPower(on bool) error { return writePower(b.dir, on) }

// Stop ends the process and removes its directory.
func (b *process) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	b.kill()
	_ = os.RemoveAll(b.dir) // a temporary directory; nothing depends on it
}

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
