package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxLinks bounds the links on the way to a directory, as the kernel does.
const maxLinks = 40

// becomeOwner drops root for good, in every thread, and becomes the user who owns the state at
// path: that user may have put links and contents there, and root must not follow them. It does
// nothing if the process is not root.
func becomeOwner(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	dir, _ := filepath.Split(path) // which cleans nothing: ".." after a link is another directory
	uid, err := firstOwner(dir)
	if err != nil {
		return fmt.Errorf("find out whose the state is: %w", err)
	}
	if uid == 0 {
		return nil
	}
	owner, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return fmt.Errorf("become the user who owns the state: %w\nhint: run it as that user", err)
	}
	if err := become(owner); err != nil {
		return fmt.Errorf("become user %s, who owns the state: %w\nhint: run it as that user", owner.Username, err)
	}
	return nil
}

// idsOf are the uid and the first gid of a user.
func idsOf(u *user.User) (uid, gid int, err error) {
	if uid, err = strconv.Atoi(u.Uid); err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, err
}

// become takes the user's uid and first group, and no other group.
func become(u *user.User) error {
	uid, gid, err := idsOf(u)
	if err != nil {
		return err
	}
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return err
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return err
	}
	return os.Unsetenv("TMPDIR") // root's may be closed to this user
}

// firstOwner is the owner of the first directory or link, on the path from / to dir, that does not
// belong to root: that user controls everything below it. It is 0 if the whole path belongs to
// root. The answer stays true, because only root can change the path up to there.
func firstOwner(dir string) (uint32, error) {
	if !filepath.IsAbs(dir) {
		wd, err := os.Getwd()
		if err != nil {
			return 0, err
		}
		dir = wd + "/" + dir
	}
	at, rest := "/", strings.Split(dir, "/")
	for links := 0; ; at, rest = filepath.Join(at, rest[0]), rest[1:] { // at has no link above its last name
		fi, err := os.Lstat(at)
		if err != nil {
			return 0, err
		}
		is, ok := fi.Sys().(*syscall.Stat_t)
		switch {
		case !ok:
			return 0, fmt.Errorf("%s: this system does not say whose it is", at)
		case is.Uid != 0:
			return is.Uid, nil
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(at)
			if links++; err == nil && links > maxLinks {
				err = &fs.PathError{Op: "follow", Path: at, Err: syscall.ELOOP}
			}
			if err != nil {
				return 0, err
			}
			rest = append(strings.Split(target, "/"), rest...)
			if at = filepath.Dir(at); filepath.IsAbs(target) {
				at = "/"
			}
		case !fi.IsDir():
			return 0, &fs.PathError{Op: "open", Path: at, Err: syscall.ENOTDIR}
		case changeable(fi.Mode(), is.Gid):
			return 0, errors.New(at + " belongs to root, and others may write in it and exchange what is there" +
				"\nhint: chmod go-w, or run this as the user of the daemon")
		}
		if len(rest) == 0 {
			return 0, nil
		}
	}
}

// changeable says whether users other than root may replace what is in a directory of root.
func changeable(mode fs.FileMode, gid uint32) bool {
	others := mode&0o002 != 0 || mode&0o020 != 0 && gid != 0
	return others && mode&fs.ModeSticky == 0
}
