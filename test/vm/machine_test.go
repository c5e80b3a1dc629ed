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
	link, err := port.Free("tcp", "127.0.0.1") // nobody is given it by chance before ipmi_sim has it
	require.NoError(t, err)
	host, number, err := net.SplitHostPort(link)
	require.NoError(t, err)
	// A killed test must not leave machines behind: each dies with its BMC.
	qemu := "setpriv --pdeathsig KILL qemu-system-x86_64 -accel tcg -m 64 -nodefaults -display none -serial none -monitor none" +
		" -pidfile " + m.pidFile +
		" -chardev socket,id=ipmi0,host=" + host + ",port=" + number + ",reconnect=2" +
		" -device ipmi-bmc-extern,id=bmc0,chardev=ipmi0 -device isa-ipmi-kcs,bmc=bmc0"
	m.bmc, err = ipmisim.StartDebian(context.Background(), ipmisim.Options{ // until the machine has ended
		User: "fence", Password: "secret", Operator: true, UUID: guid, Machine: fmt.Sprintf(running, host, number, qemu),
	})
	require.NoError(t, err)
	e, err := bmc.ParseEndpoint("ipmi://" + m.bmc.Addr())
	require.NoError(t, err)
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
	_, err := m.power.Send(t.Context(), bmc.CommandOn)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return m.pid() != 0 }, time.Minute, 20*time.Millisecond, "no machine started")
	require.Eventually(t, func() bool { return m.read(t).State == bmc.On }, time.Minute, 50*time.Millisecond)
	return m.pid()
}

func (m *machine) read(t *testing.T) bmc.Reading {
	t.Helper()
	r, err := m.power.Read(t.Context())
	require.NoError(t, err)
	return r
}
