package rig

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// workDir is the directory in which programs write. It is removed at the end, except logs that are
// kept.
type workDir struct {
	path string
	keep atomic.Bool
}

// make creates the directory in parent, or in the system's temporary directory.
func (d *workDir) make(parent, prefix string) (err error) {
	d.path, err = os.MkdirTemp(parent, prefix)
	return err
}

func (d *workDir) keepLogs() string {
	d.keep.Store(true)
	return d.path
}

// clear removes everything, or everything but the logs. Errors are harmless in a
// temporary directory.
func (d *workDir) clear() {
	switch {
	case d.path == "":
	case d.keep.Load():
		removeAllButLogs(d.path)
	default:
		_ = os.RemoveAll(d.path)
	}
}

func removeAllButLogs(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			removeAllButLogs(path)
			_ = os.Remove(path) // this fails if a log is in it
		case !strings.HasSuffix(e.Name(), ".log"):
			_ = os.Remove(path)
		}
	}
}
