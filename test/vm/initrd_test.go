package vm_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc/bmctest"
)

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
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "./guest")
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
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		a.add(name, program, content)
	}
	a.add("TRAILER!!!", 0, nil)
	path := filepath.Join(t.TempDir(), "initrd")
	require.NoError(t, os.WriteFile(path, a.Bytes(), 0o600))
	return path
}
