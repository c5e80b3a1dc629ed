//go:build failpoint

package engine

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// failpoint kills this process with SIGKILL the first time a point is reached
// in the life of the directory FENCED_FAILPOINTS: a marker file per point says
// that it has been passed. Only the tests build with this tag.
func failpoint(name ...string) {
	dir := os.Getenv("FENCED_FAILPOINTS")
	if dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(dir, strings.Join(name, "-")), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = f.Close() // the marker is its existence
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
