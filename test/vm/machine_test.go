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
	"github.com/fenced/fenced/test/port"
)

// guid is the machine's, as its BMC sends it.
const guid = "4c4c454400011000800000000000cafe"

// lanConf is the configuration of ipmi_sim. It runs the machine as its child, stops
// it by asking, and kills one that does not listen.
const lanConf = `name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 %d
    priv_limit admin
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid %s
  endlan
  serial 15 127.0.0.1 %d codec VM
  startcmd %q
  startnow false
  poweroff_wait 5
  kill_wait 3
  user 2 true "fence" "secret" operator 10 none md2 md5 straight
`

const simEmu = `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
sel_enable 0x20 1000 0x0a
mc_enable 0x20
`

// machine is a virtual machine with its BMC.
type machine struct {
	dir   string
	power *ipmi.Client
	sim   *exec.Cmd
}

// start starts the BMC of a machine, which is off. The machine goes with the test.
func start(t *testing.T) *machine {
	t.Helper()
	need(t, "ipmi_sim", "openipmi")
	need(t, "qemu-system-x86_64", "qemu-system-x86")
	m := &machine{dir: t.TempDir()}
	lan, link := freePort(t, "udp"), freePort(t, "tcp")
	// A killed test must not leave machines behind: each dies with its BMC.
	qemu := "setpriv --pdeathsig KILL qemu-system-x86_64 -accel tcg -m 64 -nodefaults -display none -serial none -monitor none" +
		" -pidfile " + m.pidFile() +
		" -chardev socket,id=ipmi0,host=127.0.0.1,port=" + strconv.Itoa(link) + ",reconnect=2" +
		" -device ipmi-bmc-extern,id=bmc0,chardev=ipmi0 -device isa-ipmi-kcs,bmc=bmc0"
	require.NoError(t, os.Mkdir(m.path("state"), 0o700))
	require.NoError(t, os.WriteFile(m.path("lan.conf"), fmt.Appendf(nil, lanConf, lan, guid, link, qemu), 0o600))
	require.NoError(t, os.WriteFile(m.path("sim.emu"), []byte(simEmu), 0o600))

	m.startBMC(t)
	m.power = ipmi.New(bmc.Device{
		Driver:   bmc.DriverIPMI,
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "127.0.0.1", Port: lan, Privilege: "OPERATOR"},
		Username: "fence", Password: bmc.NewSecret("secret"), CipherSuites: []int{3},
	}, bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute})
	t.Cleanup(func() { m.stop(t) })
	m.answers(t)
	return m
}

// startBMC starts the process that is the BMC.
func (m *machine) startBMC(t *testing.T) {
	t.Helper()
	m.sim = exec.Command("ipmi_sim", "-c", m.path("lan.conf"), "-f", m.path("sim.emu"), "-s", m.path("state"), "-n")
	m.sim.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(m.path("log"))
	require.NoError(t, err)
	defer log.Close()
	m.sim.Stdout, m.sim.Stderr = log, log
	require.NoError(t, m.sim.Start())
}

// stopBMC kills the BMC, and with it a machine that is on.
func (m *machine) stopBMC() {
	_ = m.sim.Process.Kill()
	_ = m.sim.Wait()
}

// answers waits for the BMC.
func (m *machine) answers(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // it may not listen yet
		defer cancel()
		_, err := m.power.Read(ctx)
		return err == nil
	}, 5*time.Minute, 50*time.Millisecond, "the BMC does not answer")
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
	m.stopBMC()
	require.Eventually(t, func() bool { return m.pid() == 0 }, time.Minute, 20*time.Millisecond, "the machine outlives its test")
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) pidFile() string { return m.path("pid") }

// pid is the process that is the machine; 0 without one. Another process that got
// the number later is not it.
func (m *machine) pid() int {
	text, err := os.ReadFile(m.pidFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0 // being written
	}
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for a zombie
	if err != nil || !bytes.Contains(args, []byte(m.pidFile())) {
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

// freePort is one that nobody has now, and that nobody is given by chance before ipmi_sim
// has it.
func freePort(t *testing.T, network string) int {
	t.Helper()
	addr, err := port.Free(network, "127.0.0.1")
	require.NoError(t, err)
	_, text, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	number, err := strconv.Atoi(text)
	require.NoError(t, err)
	return number
}
