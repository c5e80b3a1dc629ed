package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openRegularFile opens or creates a regular file. Users other than the administrator may
// have write access to the directory of the state. So it follows no symbolic link, does not
// wait for a pipe, and as root refuses a file with several names.
func openRegularFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, explainOpenError(path, err)
	}
	fi, err := file.Stat()
	if err == nil {
		err = checkRegularFile(fi, os.Geteuid())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// checkRegularFile refuses a file that may not be the state's own. euid is the effective
// user ID of the process: only root can write to files of other users through a hard link.
func checkRegularFile(fi fs.FileInfo, euid int) error {
	if !fi.Mode().IsRegular() {
		return notRegularError(fi)
	}
	is, ok := fi.Sys().(*syscall.Stat_t)
	if ok && euid == 0 && is.Nlink != 1 {
		return fmt.Errorf("refused, because it has %d names (hard links), and may be another program's file; remove this one", is.Nlink)
	}
	return nil
}

// explainOpenError returns an error that says more than the error of the kernel, if the
// file at path explains it.
func explainOpenError(path string, err error) error {
	fi, statErr := os.Lstat(path)
	if statErr != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return notRegularError(fi)
	}
	is, ok := fi.Sys().(*syscall.Stat_t)
	if ok && errors.Is(err, fs.ErrPermission) && int(is.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to uid %d, and this process has uid %d; find out where the file comes from, then remove it or change its owner", err, is.Uid, os.Geteuid())
	}
	return err
}

// notRegularError says why a file was refused and what to do.
func notRegularError(fi fs.FileInfo) error {
	what := "not a regular file"
	if fi.Mode()&fs.ModeSymlink != 0 {
		what = "a symbolic link, and none is followed"
	}
	return fmt.Errorf("refused, because it is %s; remove it, or let state.path name the file itself", what)
}
