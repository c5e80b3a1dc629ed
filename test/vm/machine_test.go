// Package vm_test powers real virtual machines: qemu behind the BMC of ipmi_sim,
// where off is the end of a process. The machine has no disk and stays in its
// firmware; that is enough to be on.
package vm_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/ipmi"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/port"
)

// guid is the machine's, as its BMC sends it.
const guid = "4c4c454400011000800000000000cafe"

// running are the lines of ipmi_sim's configuration by which it runs the machine as its child, stops it by
// asking, and kills one that does not listen.
const running = `serial 15 %s %s codec VM
  startcmd %q
  startnow false
  poweroff_wait 5
  kill_wait 3`

// machine is a virtual machine with its BMC.
type machine struct {
	pidFile string
	bmc     *ipmisim.DebianBMC
	power   *ipmi.Client
}

// start starts the BMC of a machine, which is off. The machine goes with the test.
func start(t *testing.T) *machine {
	t.Helper()
	need(t, "ipmi_sim", "openipmi")
	need(t, "qemu-system-x86_64", "qemu-system-x86")
	m := &machine{pidFile: filepath.Join(t.TempDir(), "pid")}
	link := must.Do(port.Free("tcp", "127.0.0.1"))(t) // nobody is given it by chance before ipmi_sim has it
	host, number, err := net.SplitHostPort(link)
	require.NoError(t, err)
	// A killed test must not leave machines behind: each dies with its BMC.
	qemu := "setpriv --pdeathsig KILL qemu-system-x86_64 -accel tcg -m 64 -nodefaults -display none -serial none -monitor none" +
		" -pidfile " + m.pidFile +
		" -chardev socket,id=ipmi0,host=" + host + ",port=" + number + ",reconnect=2" +
		" -device ipmi-bmc-extern,id=bmc0,chardev=ipmi0 -device isa-ipmi-kcs,bmc=bmc0"
	m.bmc = must.Do(ipmisim.StartDebian(context.Background(), ipmisim.Options{ // until the machine has ended
		User: "fence", Password: "secret", Operator: true, UUID: guid, Machine: fmt.Sprintf(running, host, number, qemu),
	}))(t)
	e := must.Do(bmc.ParseEndpoint("ipmi://" + m.bmc.Addr()))(t)
	m.power = ipmi.New(bmc.Device{
		Driver: bmc.DriverIPMI, Endpoint: e, Username: "fence", Password: bmc.NewSecret("secret"), CipherSuites: []int{3},
	}, bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute})
	t.Cleanup(func() { m.stop(t) })
	return m
}

// need skips a test without one of its peers; CI has them all.
func need(t *testing.T, program, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		bmctest.Missing(t, program+" is not installed (Debian package "+debianPackage+")")
	}
}

// stop ends the machine before its BMC: without the BMC nobody would end it.
func (m *machine) stop(t *testing.T) {
	if pid := m.pid(); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = m.power.Close(context.Background())
	m.bmc.Stop()
	require.Eventually(t, func() bool { return m.pid() == 0 }, time.Minute, 20*time.Millisecond, "the machine outlives its test")
}

// pid is the process that is the machine; 0 without one. Another process that got
// the number later is not it.
func (m *machine) pid() int {
	text, err := os.ReadFile(m.pidFile)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0 // being written
	}
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for a zombie
	if err != nil || !bytes.Contains(args, []byte(m.pidFile)) {
		return 0
	}
	return pid
}

// on switches the machine on and gives its process.
func (m *machine) on(t *testing.T) int {
	t.Helper()
	must.Do(m.power.Send(t.Context(), bmc.CommandOn))(t)
	require.Eventually(t, func() bool { return m.pid() != 0 }, time.Minute, 20*time.Millisecond, "no machine started")
	require.Eventually(t, func() bool { return m.read(t).State == bmc.On }, time.Minute, 50*time.Millisecond)
	return m.pid()
}

func (m *machine) read(t *testing.T) bmc.Reading {
	t.Helper()
	return must.Do(m.power.Read(t.Context()))(t)
}

const spacing = 3 * time.Second

// prove reads until the machine is proven off, and says how long it was read On
// before. Proven while the process lives is the one thing that must not be.
func (m *machine) prove(t *testing.T) (on time.Duration) {
	t.Helper()
	begin := time.Now()
	proof := bmc.Proof{Spacing: spacing, MaxAge: 5 * time.Second}
	for time.Since(begin) < 5*time.Minute {
		r := m.read(t)
		if r.State == bmc.On {
			on = r.At.Sub(begin)
		}
		proof = proof.Add(r)
		if proof.Proven(time.Now()) {
			require.Zero(t, m.pid(), "proven off, and it runs")
			require.GreaterOrEqual(t, r.At.Sub(proof.Since()), spacing)
			return on
		}
		time.Sleep(250 * time.Millisecond)
	}
	require.Fail(t, "not proven off")
	return 0
}

// TestVMOffAndOn: off ends the process, and on starts another.
func TestVMOffAndOn(t *testing.T) {
	t.Parallel()
	m := start(t)
	require.Equal(t, bmc.Off, m.read(t).State, "never started")
	first := m.on(t)
	require.True(t, bmc.UUIDsMatch(guid, m.read(t).Identity.UUID))

	must.Do(m.power.Send(t.Context(), bmc.CommandOff))(t)
	m.prove(t)

	second := m.on(t)
	require.NotEqual(t, first, second)
	_, err := m.power.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err, "already on")
	require.Equal(t, second, m.pid(), "on is not a reset")
}

// TestVMLateOff: a machine that cannot stop is off only when it was killed. Its BMC
// accepts the order at once.
func TestVMLateOff(t *testing.T) {
	t.Parallel()
	// The simulator's waits were measured to end after 3.7 to 7.3 s: a busy machine may look later.
	pace.Until(t, "the order is accepted and not done, and On is read until the machine is killed", func() bool {
		m := start(t)
		pid := m.on(t)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		_, err := m.power.Send(t.Context(), bmc.CommandOff)
		require.NoError(t, err, "accepted")
		notDone := pid == m.pid()
		return m.prove(t) > 2*time.Second && notDone
	})
}

// TestVMFoundOff: a machine that died is proven off without an order.
func TestVMFoundOff(t *testing.T) {
	t.Parallel()
	m := start(t)
	require.NoError(t, syscall.Kill(m.on(t), syscall.SIGKILL))
	m.prove(t)
}

// guestTime bounds the guest's life: about 30 s of waiting, and a boot, on a machine that
// may be busy.
const guestTime = 15 * time.Minute

// TestVMOwnBMC runs internal/localbmc under a real kernel in a machine with a BMC:
// what it tells about itself is the machine's, the watchdog of another program is
// left alone, kicks keep the machine on, a stop and a restart leave nothing behind,
// and a hang powers it down.
func TestVMOwnBMC(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-system-x86")
	const uuid = "44454c4c-1000-1100-8000-00000000cafe"
	// A busy machine may hold up all of qemu, and then the watchdog ends the guest too early.
	var said []string
	var text []byte
	for _, timeout := range []time.Duration{6 * time.Second, 24 * time.Second, 96 * time.Second} {
		if said, text = guestSays(t, uuid, timeout); len(said) == 8 {
			break
		}
		t.Logf("with a timeout of %s the guest ended too early:\n%s", timeout, text)
	}
	require.Len(t, said, 8, "%s", text)
	match := regexp.MustCompile(`^facts guid=(\S+) uuid=(\S+) addrs=0$`).FindStringSubmatch(said[0])
	require.NotNil(t, match, said[0])
	require.True(t, bmc.UUIDsMatch(uuid, match[1]), "the BMC tells %s", match[1])
	require.Equal(t, uuid, match[2])
	require.Contains(t, said[1], "the kernel's module ipmi_watchdog is loaded")
	require.Equal(t, []string{
		"stopped what a crash left",
		"watchdog true <nil>", "held", "stopped",
		"watchdog true <nil>", "hung for half the timeout", // and then nothing
	}, said[2:])
}

// guestSays runs the guest with a timeout of the watchdog until it is powered down, and gives what
// it said, and all of the console.
func guestSays(t *testing.T, uuid string, timeout time.Duration) (said []string, text []byte) {
	t.Helper()
	dir := kernel(t)
	console := filepath.Join(t.TempDir(), "console")
	ctx, cancel := context.WithTimeout(t.Context(), guestTime)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg", "-m", "192", "-nodefaults", "-display", "none",
		"-monitor", "none", "-serial", "file:"+console, "-uuid", uuid,
		"-kernel", filepath.Join(dir, "vmlinuz"), "-initrd", initrd(t, dir), "-append", "console=ttyS0 quiet FENCED_TIMEOUT="+timeout.String(),
		"-device", "ipmi-bmc-sim,id=bmc0,guid="+uuid, "-device", "isa-ipmi-kcs,bmc=bmc0")
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := qemu.CombinedOutput()
	text, readErr := os.ReadFile(console)
	require.NoError(t, readErr)
	// Only a power-down ends qemu: a reset boots again and a panic stays.
	require.NoError(t, err, "the machine was not powered down: %s\n%s", out, text)

	for line := range strings.Lines(string(text)) {
		if i := strings.Index(line, "guest: "); i >= 0 {
			said = append(said, strings.TrimSpace(line[i+len("guest: "):]))
		}
	}
	return said, text
}

// archive is a cpio archive as the kernel unpacks it, in the format newc.
type archive struct {
	bytes.Buffer
	inode int
}

// The modes of what it holds.
const (
	directory = 0o040755
	program   = 0o100755
)

func (a *archive) add(name string, mode int, content []byte) {
	a.inode++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(content)
	a.pad()
}

func (a *archive) pad() { a.Write(make([]byte, -a.Len()&3)) }

// kernel gives the directory of the guest's kernel and modules; a test without one
// is skipped, and fails in CI.
func kernel(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./kernel.sh")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		bmctest.Missing(t, fmt.Sprintf("no kernel for the guest: %v: %s", err, said.String()))
	}
	return string(bytes.TrimSpace(out))
}

// initrd builds the guest's program and packs it with the modules in dir.
func initrd(t *testing.T, dir string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "init")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "grpcnotrace", "-gcflags=all=-dwarf=false", "-ldflags", "-s -w", "-o", bin, "./guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64", "GOFLAGS=-buildvcs=false")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var a archive
	for _, d := range []string{"dev", "proc", "sys"} {
		a.add(d, directory, nil)
	}
	files := map[string]string{"init": bin}
	for _, m := range []string{"ipmi_msghandler.ko", "ipmi_devintf.ko", "ipmi_si.ko", "ipmi_watchdog.ko"} {
		files[m] = filepath.Join(dir, m)
	}
	for name, path := range files {
		content := must.Do(os.ReadFile(path))(t)
		a.add(name, program, content)
	}
	a.add("TRAILER!!!", 0, nil)
	path := filepath.Join(t.TempDir(), "initrd")
	require.NoError(t, os.WriteFile(path, a.Bytes(), 0o600))
	return path
}
