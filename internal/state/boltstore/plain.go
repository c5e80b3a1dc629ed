package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openPlain opens, or makes, a regular file under this very name. Others than the
// administrator write in the directory of the state: no link of theirs is followed,
// no pipe waited for, and as root no second name of a file elsewhere is taken.
func openPlain(path string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, explainOpen(path, err)
	}
	fi, err := file.Stat()
	if err == nil {
		err = checkPlain(fi, os.Geteuid())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// checkPlain refuses a file that is not the state's own. euid is that of the process:
// only root can write what belongs to somebody else, and has to fear a second name.
func checkPlain(fi fs.FileInfo, euid int) error {
	if !fi.Mode().IsRegular() {
		return refuseKind(fi)
	}
	is, ok := fi.Sys().(*syscall.Stat_t)
	if ok && euid == 0 && is.Nlink != 1 {
		return fmt.Errorf("refused, because it has %d names (hard links), and may be another program's file; remove this one", is.Nlink)
	}
	return nil
}

// explainOpen says what is in the way where the kernel's words do not.
func explainOpen(path string, err error) error {
	fi, statErr := os.Lstat(path)
	if statErr != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return refuseKind(fi)
	}
	is, ok := fi.Sys().(*syscall.Stat_t)
	if ok && errors.Is(err, fs.ErrPermission) && int(is.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to uid %d, and this is done as uid %d; look where it comes from, then remove it or change its owner", err, is.Uid, os.Geteuid())
	}
	return err
}

func refuseKind(fi fs.FileInfo) error {
	kind := "not a regular file"
	if fi.Mode()&fs.ModeSymlink != 0 {
		kind = "a symbolic link, and none is followed"
	}
	return fmt.Errorf("refused, because it is %s; remove it, or let state.path name the file itself", kind)
}
