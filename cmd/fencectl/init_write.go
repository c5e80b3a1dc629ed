package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fenced/fenced/configs"
	"github.com/fenced/fenced/internal/setup"
)

// serviceGroup is the group of the daemon, which may read the configuration.
const serviceGroup = "fenced"

// writer puts files below a directory.
type writer struct {
	dir string
	gid int // -1: that of this process; then only this user may read
}

// writeFiles writes all files or, if one exists that it may not replace, none.
func writeFiles(dir string, files []setup.File, force bool) error {
	w := writer{dir: dir, gid: -1}
	if g, err := user.LookupGroup(serviceGroup); err == nil && os.Geteuid() == 0 {
		if w.gid, err = strconv.Atoi(g.Gid); err != nil {
			return fmt.Errorf("init: the group %s has the id %q: %w", serviceGroup, g.Gid, err)
		}
	}
	replace := map[string]bool{}
	var exist []string
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		switch _, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("init: %w", err)
		case force, f.Path == "fenced.yaml" && isUnchanged(path):
			replace[path] = true
		default:
			exist = append(exist, path)
		}
	}
	if len(exist) > 0 {
		return &exitError{code: exitConflict, err: fmt.Errorf("init: nothing was written: %s exists already", strings.Join(exist, ", ")), hint: []string{
			"--output-dir DIR writes to another directory, --dry-run only shows what was seen, --force replaces the files"}}
	}
	for _, sub := range []string{"hosts.d", "policies.d", "credentials"} { // fenced.yaml and the next steps name them
		if err := w.makeDirs(filepath.Join(dir, sub)); err != nil {
			return fmt.Errorf("init: %w", err)
		}
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if err := w.put(path, f, replace[path]); err != nil {
			return fmt.Errorf("init: write %s: %w", path, err)
		}
	}
	return nil
}

// isUnchanged says whether a file is the fenced.yaml of the package as it was installed: nobody's work,
// and kept in /usr/share/doc/fenced/examples.
func isUnchanged(path string) bool {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() != int64(len(configs.Reference)) {
		return false
	}
	text, err := os.ReadFile(path)
	return err == nil && bytes.Equal(text, configs.Reference)
}

// put writes one file in one step: a reader sees the whole file or none. Without replace, a file that has
// appeared in the meantime stays.
func (w writer) put(path string, f setup.File, replace bool) (err error) {
	dir := filepath.Dir(path)
	if err := w.makeDirs(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // not *.yaml, and nobody else may read it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(tmp.Name())) }()
	_, err = tmp.Write(f.Text)
	err = errors.Join(err, w.own(tmp, f.Script), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if replace {
		err = os.Rename(tmp.Name(), path)
	} else {
		err = os.Link(tmp.Name(), path)
	}
	return err
}

// remove removes a file that may be gone.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// own gives a file its group and mode.
func (w writer) own(f *os.File, script bool) error {
	mode := os.FileMode(0o600)
	if w.gid >= 0 {
		if err := f.Chown(-1, w.gid); err != nil {
			return err
		}
		mode = 0o640
	}
	if script {
		mode |= 0o100
	}
	return f.Chmod(mode)
}

// makeDirs makes the directories that are missing.
func (w writer) makeDirs(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.makeDirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if w.gid < 0 {
		return nil
	}
	return os.Chown(dir, -1, w.gid)
}
