package ipmisim

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
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
