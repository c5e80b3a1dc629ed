package vm_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/must"
)

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
