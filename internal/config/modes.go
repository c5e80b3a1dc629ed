package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// CheckGuarded refuses what every user of this host could change: a file or a
// directory that everybody may write, and one in a directory where everybody may put
// another in its place. A link is followed, and must be guarded itself. Such a file
// would let anyone choose which hosts are powered off.
func CheckGuarded(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if err := refuseWritable(real, false); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(real), filepath.Dir(path)} {
		if err := checkDirectories(dir); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// checkDirectories checks a directory and all above it. In one with the sticky bit, as
// /tmp, nobody can rename what belongs to others; but anyone can add files, and make
// one before its owner does.
func checkDirectories(dir string) error {
	for sticky := false; ; sticky = true {
		if err := refuseWritable(dir, sticky); err != nil {
			return err
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// refuseWritable is the error of a file or directory that everybody may write.
func refuseWritable(path string, stickyWillDo bool) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	sticky := fi.Mode()&fs.ModeSticky != 0
	switch {
	case fi.Mode().Perm()&0o002 == 0, sticky && stickyWillDo:
		return nil
	case sticky: // it is meant to be so
		return fmt.Errorf("everybody may write in %s, so any user of this host could decide what fenced does; use a directory that only root may write, as /etc/fenced", path)
	}
	return fmt.Errorf("everybody may write %[1]s (mode %04[2]o), so any user of this host could decide what fenced does; run: chmod o-w %[1]s", path, fi.Mode().Perm())
}

// openRegular opens a regular file that is not writable by everybody. A pipe or a device
// would block the daemon.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err == nil {
		err = CheckGuarded(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// warnModes warns of files that more people may read or write than need to.
func warnModes(c Config) (warnings []string) {
	confs, _ := listFiles(c.ConfDir()) // who reads them reports the error
	for _, path := range slices.Concat([]string{c.File, c.State.Etcd.Key}, confs, Kubeconfigs(c)) {
		if mode, _, ok := modeOf(path); ok && mode&0o004 != 0 {
			warnings = append(warnings, fmt.Sprintf("%[1]s: everybody may read it (mode %04[2]o), and it tells secrets, or where they are; run: chmod o= %[1]s", path, mode))
		}
	}
	for _, path := range append(OwnFiles(c), Kubeconfigs(c)...) {
		if mode, group, ok := modeOf(path); ok && mode&0o020 != 0 && group != 0 {
			warnings = append(warnings, fmt.Sprintf("%[1]s: its group may write it (mode %04[2]o), so each member of that group can decide what fenced does; run: chmod g-w %[1]s", path, mode))
		}
	}
	return warnings
}

// Kubeconfigs are all that c names, each once.
func Kubeconfigs(c Config) (paths []string) {
	for _, cl := range c.Clusters {
		paths = append(paths, cl.Kubeconfig, cl.Management.Kubeconfig)
	}
	slices.Sort(paths)
	return slices.DeleteFunc(slices.Compact(paths), func(p string) bool { return p == "" })
}

// OwnFiles are the files and directories that decide what fenced does.
func OwnFiles(c Config) []string {
	paths := []string{c.File}
	for _, dir := range []string{c.ConfDir(), c.Hosts, c.Policies} {
		files, _ := listFiles(dir) // who reads them reports the error
		paths = append(append(paths, dir), files...)
	}
	return paths
}

// modeOf is the permission and the group of a file. The code that needs the file reports
// an error of it.
func modeOf(path string) (mode fs.FileMode, group uint32, ok bool) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, 0, false
	}
	return fi.Mode().Perm(), fi.Sys().(*syscall.Stat_t).Gid, true // Linux: always this type
}
