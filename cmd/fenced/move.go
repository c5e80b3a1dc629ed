package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/state"
)

// move carries out --export and --import: the state is copied to or from a file while no daemon
// uses it.
type move struct{ export, from string }

func (m move) do(ctx context.Context, c config.State, stdout io.Writer) error {
	if m.export != "" {
		return m.out(ctx, c, stdout)
	}
	return m.in(ctx, c, stdout)
}

func (m move) out(ctx context.Context, c config.State, stdout io.Writer) error {
	if c.Engine != config.EngineEtcd {
		if _, err := os.Lstat(c.Path); err != nil { // opening would make an empty one
			return fmt.Errorf("export the state: %w", err)
		}
	}
	n, err := writeExport(m.export, func(f io.Writer) (n int, err error) {
		s, err := openAsOwner(ctx, c, openWhole)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		return state.Export(ctx, s, f)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "exported %d records to %s\n", n, m.export)
	return nil
}

// writeExport creates a file that only its owner may read. After an error it removes the file again.
// If write has dropped the permission to do that, the error says so.
func writeExport(path string, write func(io.Writer) (int, error)) (n int, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, exportFailed(err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, removePart(path))
		}
	}()
	if n, err = write(f); err != nil {
		return 0, err
	}
	return n, f.Sync()
}

func removePart(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("%w\nhint: the file is not a whole export; remove it", err)
	}
	return nil
}

// exportFailed adds the hint for a file that exists already.
func exportFailed(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("export the state: %w\nhint: name a file that does not exist: an export overwrites none", err)
	}
	return fmt.Errorf("export the state: %w", err)
}

func (m move) in(ctx context.Context, c config.State, stdout io.Writer) (err error) {
	f, err := os.Open(m.from)
	if err != nil {
		return fmt.Errorf("import the state: %w", err)
	}
	defer f.Close() // it was only read
	s, err := openAsOwner(ctx, c, openStore)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n, err := state.Import(ctx, s, f)
	if err != nil {
		return fmt.Errorf("read %s: %w\nhint: an import wants the whole file of an export, and a state that is empty and that no daemon uses", m.from, err)
	}
	fmt.Fprintf(stdout, "imported %d records; no cluster is acted on until fenced is started\n", n)
	return nil
}

// openAsOwner opens the state as the user who owns it. The caller has opened the other file before,
// with the permissions of the user who gave the command.
func openAsOwner(ctx context.Context, c config.State, open func(context.Context, config.State) (state.Store, error)) (state.Store, error) {
	if c.Engine != config.EngineEtcd {
		if err := becomeOwner(c.Path); err != nil {
			return nil, err
		}
	}
	return open(ctx, c)
}

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

// changeable returns whether users other than root may replace what is in a directory of root.
func changeable(mode fs.FileMode, gid uint32) bool {
	others := mode&0o002 != 0 || mode&0o020 != 0 && gid != 0
	return others && mode&fs.ModeSticky == 0
}
