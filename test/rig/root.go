package rig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

const modulePath = "github.com/fenced/fenced"

// Root finds the directory of the main module in the working directory or above it: a test runs in the
// directory of its package, the demo at the top. The nested module and the shipped manifests are read
// from there.
func Root() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module "+modulePath+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s at or above %s", modulePath, wd)
		}
	}
}
