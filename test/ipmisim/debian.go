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

// DebianBMC is an ipmi_sim process; a script and three files are its chassis.
type DebianBMC struct {
	addr  string
	dir   string
	start func() error // a new process

	mu      sync.Mutex
	process *os.Process
	kill    func() // ends the process, and waits for it
}

var _ BMC = (*DebianBMC)(nil)

// ErrNoDebianSim says that the package openipmi is not installed.
var ErrNoDebianSim = errors.New("ipmi_sim is not installed (Debian package openipmi)")

// StartDebian starts an ipmi_sim in a directory of its own. It runs until Stop
// or the end of ctx. It serves cipher suite 3 and no other.
func StartDebian(ctx context.Context, o Options) (*DebianBMC, error) {
	bin, err := exec.LookPath("ipmi_sim")
	if err != nil {
		return nil, ErrNoDebianSim
	}
	for _, s := range o.Suites {
		if s != 3 {
			return nil, fmt.Errorf("start ipmi_sim: it has cipher suite 3, not %d", s)
		}
	}
	o, guid, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start ipmi_sim: %w", err)
	}
	dir, err := os.MkdirTemp("", "ipmisim-")
	if err != nil {
		return nil, fmt.Errorf("start ipmi_sim: %w", err)
	}
	b := &DebianBMC{dir: dir, kill: func() {}}
	b.start = func() error { return b.run(ctx, bin) }
	for try := 1; ; try++ {
		if b.addr, err = freePort(o.Addr); err == nil {
			err = writeFiles(dir, b.addr, o, guid)
		}
		if err == nil {
			err = b.start()
		}
		if err == nil {
			return b, nil
		}
		if try == portTries || !errors.Is(err, errPortTaken) {
			b.Stop()
			return nil, fmt.Errorf("start ipmi_sim: %w", err)
		}
		b.kill()
	}
}

// ipmi_sim cannot choose a port itself. One that was free may be somebody else's before it
// binds it: then it ends, and another is tried.
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

// run starts the process and waits until it answers.
func (b *DebianBMC) run(ctx context.Context, bin string) error {
	life, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(life, bin, "-c", b.path("lan.conf"), "-f", b.path("sim.emu"), "-s", b.path("state"), "-n")
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
		_ = cmd.Wait() // killed, always
	}()
	b.process, b.kill = cmd.Process, func() {
		cancel()
		<-ended
	}
	return b.ready(ctx, ended)
}

// authCapabilities is Get Channel Authentication Capabilities in IPMI 1.5
// framing: the one question a BMC answers to anybody.
const authCapabilities = "\x06\x00\xff\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09\x20\x18\xc8\x81\x00\x38\x8e\x04\xb5"

// answerTime is how long ipmi_sim may take until it answers; only one that hangs takes so
// long.
const answerTime = 2 * time.Minute

// ready waits until the simulator answers, and not somebody else at its address.
func (b *DebianBMC) ready(ctx context.Context, ended <-chan struct{}) error {
	conn, err := net.Dial("udp", b.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 64)
	for end := time.Now().Add(answerTime); time.Now().Before(end) && ctx.Err() == nil; {
		if b.bound() {
			if _, err := conn.Write([]byte(authCapabilities)); err == nil {
				_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				if _, err := conn.Read(buf); err == nil {
					return nil
				}
			}
		}
		select {
		case <-ended:
			return fmt.Errorf("%s: %w; it wrote: %s", b.addr, errPortTaken, b.log())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("no answer on %s; it wrote: %s", b.addr, b.log())
}

// log is what the process wrote; an unreadable one says nothing.
func (b *DebianBMC) log() string {
	text, _ := os.ReadFile(b.path("log"))
	return string(text)
}

// bound says whether the process has a UDP socket with its port.
func (b *DebianBMC) bound() bool {
	_, port, _ := net.SplitHostPort(b.addr)
	n, _ := strconv.Atoi(port) // the kernel gave it
	proc := fmt.Sprintf("/proc/%d/", b.process.Pid)
	table, _ := os.ReadFile(proc + "net/udp")
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // local address second, inode tenth
		if len(f) < 10 || !strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) {
			continue
		}
		fds, _ := os.ReadDir(proc + "fd")
		for _, fd := range fds {
			if to, _ := os.Readlink(proc + "fd/" + fd.Name()); to == "socket:["+f[9]+"]" {
				return true
			}
		}
	}
	return false
}

func (b *DebianBMC) path(name string) string { return filepath.Join(b.dir, name) }

// Addr is the host:port of the BMC.
func (b *DebianBMC) Addr() string { return b.addr }

// Power says whether the host is truly on.
func (b *DebianBMC) Power() bool {
	on, err := b.Source(context.Background())
	return on || err != nil
}

// Source reads the file that is the host's power.
func (b *DebianBMC) Source(ctx context.Context) (bool, error) {
	text, err := os.ReadFile(b.path("power"))
	if err != nil {
		return false, fmt.Errorf("read power of simulated host: %w", err)
	}
	return string(text) != "0\n", ctx.Err()
}

// SetPower switches the host behind the BMC's back.
func (b *DebianBMC) SetPower(on bool) error { return writePower(b.dir, on) }

// Stop ends the process and removes its directory.
func (b *DebianBMC) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kill()
	_ = os.RemoveAll(b.dir) // a temporary directory; nothing depends on it
}
