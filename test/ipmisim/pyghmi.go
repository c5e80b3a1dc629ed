package ipmisim

import (
	"context"
	_ "embed" // the program
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

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
	python := pythonWithPyghmi(ctx)
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
func pythonWithPyghmi(ctx context.Context) string {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(ctx, python, "-c", "import pyghmi.ipmi.bmc").Run() == nil {
			return python
		}
	}
	return ""
}

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
