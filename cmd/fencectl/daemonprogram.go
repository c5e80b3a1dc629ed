package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// daemonProgram finds fenced: beside this program, where the package puts it, or on the path.
// The path is last, because this is often run by root.
func daemonProgram() (string, error) {
	if own, err := os.Executable(); err == nil {
		dir := filepath.Dir(own)
		for _, path := range []string{filepath.Join(dir, "fenced"), filepath.Join(dir, "../libexec/fenced/fenced")} {
			if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	path, err := exec.LookPath("fenced")
	if err != nil {
		return "", &exitError{code: exitFailure, err: fmt.Errorf("the program of the daemon, which does this, is not installed: %w", err),
			hint: []string{"install the package of fenced on this host"}}
	}
	return path, nil
}
