package ipmisim

import (
	"cmp"
	"context"
	_ "embed" // the program
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// DebianBMC is an ipmi_sim process.
type DebianBMC struct{ *process }

// ErrNoDebianSim says that the package openipmi is not installed.
var ErrNoDebianSim = errors.New("ipmi_sim is not installed (Debian package openipmi)")

// StartDebian starts an ipmi_sim in a directory of its own. It runs until Stop
// or the end of ctx. It serves cipher suite 3 and no other.
func StartDebian(ctx context.Context, o Options) (*DebianBMC, error) {
	bin, err := exec.LookPath("ipmi_sim")
	if err != nil {
		return nil, ErrNoDebianSim
	}
	o, guid, err := o.onlySuite3()
	if err != nil {
		return nil, fmt.Errorf("start ipmi_sim: %w", err)
	}
	p, err := launch(ctx, "ipmi_sim", o,
		func(dir, addr string) error { return writeDebian(dir, addr, o, guid) },
		func(dir string) []string {
			return []string{bin, "-c", filepath.Join(dir, "lan.conf"), "-f", filepath.Join(dir, "sim.emu"), "-s", filepath.Join(dir, "state"), "-n"}
		})
	if err != nil {
		return nil, err
	}
	return &DebianBMC{p}, nil
}

// onlySuite3 is withDefaults for a program that serves cipher suite 3 alone.
func (o Options) onlySuite3() (Options, [16]byte, error) {
	for _, s := range o.Suites {
		if s != 3 {
			return o, [16]byte{}, fmt.Errorf("it has cipher suite 3, not %d", s)
		}
	}
	return o.withDefaults()
}

// chassisScript is the chassis of a process: it is run for every chassis command as "chassis.sh FILE get power" or "chassis.sh FILE set NAME VALUE".
//
// A change that comes late waits in the background, holding nothing of the
// process, and is dropped when another order came meanwhile.
const chassisScript = `#!/bin/sh
file=$1 verb=$2 name=$3 value=$4
put() {
	read -r order <"$file.order"
	if [ "$order" = $$ ]; then echo "$1" >"$file.new" && mv "$file.new" "$file"; fi
}
back() {
	if [ -e "$file.back-on" ]; then sleep "$(cat "$file.back-on")"; put 1; fi
}
late() {
	sleep "$(cat "$file.late-off")"; put 0; back
}
if [ -e "$file.slow" ]; then sleep "$(cat "$file.slow")"; fi
case "$verb $name" in
"get power")
	if [ -e "$file.lie-off" ]; then on=0; else read -r on <"$file"; fi
	echo "power:$on" ;;
"set power")
	if [ "$value" = 0 ] && [ -e "$file.ignore-off" ]; then exit 0; fi
	echo $$ >"$file.order"
	if [ "$value" = 1 ]; then put 1; exit 0; fi
	if [ -e "$file.late-off" ]; then
		late </dev/null >/dev/null 2>&1 &
	else
		put 0
		back </dev/null >/dev/null 2>&1 &
	fi ;;
"set "*) ;;
*) exit 1 ;;
esac
`

// simEmu is a management controller with a log of two entries, forced off and
// then working, and an inventory: board BRD0042 of Acme, in product SRV12345.
const simEmu = `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
sel_enable 0x20 1000 0x0a
sel_add 0x20 0x02 0x00 0x00 0x00 0x00 0x20 0x00 0x04 0x22 0x01 0x6f 0x0a 0xff 0xff
sel_add 0x20 0x02 0x00 0x00 0x00 0x00 0x20 0x00 0x04 0x22 0x01 0x6f 0x00 0xff 0xff
mc_add_fru_data 0x20 0 %d data %s
mc_enable 0x20
`

// inventory is the FRU data of simEmu: header, board area, product area.
const inventory = "0x01 0x00 0x00 0x01 0x05 0x00 0x00 0xf9 " +
	"0x01 0x04 0x19 0x00 0x00 0x00 0xc4 0x41 0x63 0x6d 0x65 0xc5 0x42 0x6f 0x61 0x72 " +
	"0x64 0xc7 0x42 0x52 0x44 0x30 0x30 0x34 0x32 0xc3 0x50 0x2d 0x37 0xc1 0x00 0x5e " +
	"0x01 0x05 0x19 0xc4 0x41 0x63 0x6d 0x65 0xc8 0x53 0x65 0x72 0x76 0x65 0x72 0x20 " +
	"0x39 0xc4 0x50 0x4e 0x2d 0x31 0xc2 0x76 0x31 0xc8 0x53 0x52 0x56 0x31 0x32 0x33 " +
	"0x34 0x35 0xc0 0xc1 0x00 0x00 0x00 0xa3 "

func lanConf(dir, addr string, o Options, guid [16]byte) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	level := "admin"
	if o.Operator {
		level = "operator"
	}
	nullUser := ""
	if o.NullUser {
		nullUser = `user 1 true "" "" operator 10 none md2 md5 straight`
	}
	key := ""
	if o.KG != "" {
		key = fmt.Sprintf("bmc_key %q", o.KG)
	}
	machine := fmt.Sprintf("chassis_control %q", filepath.Join(dir, "chassis.sh")+" "+filepath.Join(dir, "power"))
	return fmt.Sprintf(`name "bmc"
set_working_mc 0x20
  startlan 1
    addr %s %s
    priv_limit admin
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid %x
    %s
  endlan
  %s
  user 2 true %q %q %s 10 none md2 md5 straight
  %s
`, host, port, guid, key, cmp.Or(o.Machine, machine), o.User, o.Password, level, nullUser), nil
}

// writeDebian fills the directory of one ipmi_sim.
func writeDebian(dir, addr string, o Options, guid [16]byte) error {
	conf, err := lanConf(dir, addr, o, guid)
	if err != nil {
		return err
	}
	// ipmi_sim keeps users and more here, and refuses to start without it.
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "lan.conf"), []byte(conf), 0o600); err != nil {
		return err
	}
	emu := fmt.Sprintf(simEmu, len(strings.Fields(inventory)), inventory)
	if err := os.WriteFile(filepath.Join(dir, "sim.emu"), []byte(emu), 0o600); err != nil {
		return err
	}
	return writeChassis(dir, o)
}

// writeChassis writes the script of the chassis, and the state of the host.
func writeChassis(dir string, o Options) error {
	if err := os.WriteFile(filepath.Join(dir, "chassis.sh"), []byte(chassisScript), 0o700); err != nil {
		return err
	}
	return writePower(dir, !o.Off)
}

// writePower replaces the file that is the host's power in one step, because
// the script may read it at any moment.
func writePower(dir string, on bool) error {
	text := "0\n"
	if on {
		text = "1\n"
	}
	// No order's number: what an order still wants to do later is void.
	if err := os.WriteFile(filepath.Join(dir, "power.order"), []byte("0\n"), 0o600); err != nil {
		return fmt.Errorf("set power of simulated host: %w", err)
	}
	tmp := filepath.Join(dir, "power.set")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return fmt.Errorf("set power of simulated host: %w", err)
	}
	return os.Rename(tmp, filepath.Join(dir, "power"))
}

// PyghmiBMC is a process with the BMC server of pyghmi, which virtualbmc and
// fakebmc are made of. It has one session for each client address, which each Open
// Session Request replaces. It answers every request with cipher suite 3, does not
// answer an unknown user, and ends at a message that it does not expect.
type PyghmiBMC struct{ *process }

// ErrNoPyghmi says that the package python3-pyghmi is not installed.
var ErrNoPyghmi = errors.New("pyghmi is not installed (Debian package python3-pyghmi)")

//go:embed pyghmibmc.py
var pyghmiProgram string

// StartPyghmi starts a BMC of pyghmi in a directory of its own. It runs until Stop
// or the end of ctx.
func StartPyghmi(ctx context.Context, o Options) (*PyghmiBMC, error) {
	python := pythonWithPyghmi()
	if python == "" {
		return nil, ErrNoPyghmi
	}
	o, guid, err := o.onlySuite3()
	switch {
	case err != nil:
		return nil, fmt.Errorf("start pyghmi: %w", err)
	case o.Operator || o.NullUser:
		return nil, errors.New("start pyghmi: its accounts have a name, and are ADMINISTRATOR")
	}
	p, err := launch(ctx, "pyghmi", o,
		func(dir, addr string) error { return writePyghmi(dir, addr, o, guid) },
		func(dir string) []string { return []string{python, filepath.Join(dir, "pyghmibmc.py"), dir} })
	if err != nil {
		return nil, err
	}
	return &PyghmiBMC{p}, nil
}

// pythonWithPyghmi is the interpreter that has the module; empty if none has. The
// first python3 of PATH need not be the one that Debian's packages are for.
var pythonWithPyghmi = sync.OnceValue(func() string {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import pyghmi.ipmi.bmc").Run() == nil {
			return python
		}
	}
	return ""
})

// writePyghmi fills the directory of one BMC.
func writePyghmi(dir, addr string, o Options, guid [16]byte) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%x", guid)
	if o.NewGUID {
		text = ""
	}
	config, err := json.Marshal(map[string]string{
		"address": host, "port": port, "user": o.User, "password": o.Password, "guid": text, "kg": o.KG,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "pyghmibmc.py"), []byte(pyghmiProgram), 0o600); err != nil {
		return err
	}
	return writeChassis(dir, o)
}
