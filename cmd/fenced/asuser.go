package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/config"
)

// systemctlTime bounds the call that asks systemd for the user of the unit.
const systemctlTime = 10 * time.Second

// serviceUser is the user whom the daemon runs as: the user of its unit if the state has the path of
// the unit, otherwise the owner of the state. It is nil if that is root, or is not known, or if the
// caller is not root: then reading the files itself shows what is missing.
func serviceUser(state string) *user.User {
	if os.Geteuid() != 0 {
		return nil
	}
	if state == config.Default().State.Path {
		if name, ok := unitUser(); ok {
			return notRoot(user.Lookup(name))
		}
	}
	uid, err := firstOwner(filepath.Dir(state))
	if err != nil {
		return nil
	}
	return notRoot(user.LookupId(strconv.FormatUint(uint64(uid), 10)))
}

func notRoot(u *user.User, err error) *user.User {
	if err != nil || u.Uid == "0" {
		return nil
	}
	return u
}

// unitUser asks systemd for the user of the unit; not ok if there is no such unit, or no
// systemd.
func unitUser() (name string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), systemctlTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=LoadState,User", "fenced.service").Output()
	if err != nil || !slices.Contains(strings.Fields(string(out)), "LoadState=loaded") {
		return "", false
	}
	for line := range strings.Lines(string(out)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "User="); found {
			name = value
		}
	}
	return cmp.Or(name, "root"), true
}

// asUser calls f with the file permissions of a user, and no others. They are those of one thread,
// which ends with f. Goroutines that f starts have the permissions of the process.
func asUser(u *user.User, f func()) error {
	uid, gid, err := idsOf(u)
	if err != nil {
		return err
	}
	names, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("find the groups of user %s: %w", u.Username, err)
	}
	groups := []uint32{uint32(gid)}
	for _, name := range names {
		if id, err := strconv.ParseUint(name, 10, 32); err == nil {
			groups = append(groups, uint32(id))
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		err := becomeOnThread(uid, gid, groups)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("try as user %s: %w", u.Username, err)
	}
	return nil
}

// becomeOnThread changes the calling thread only. The functions of package syscall change all threads.
func becomeOnThread(uid, gid int, groups []uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return fmt.Errorf("set groups: %w", errno)
	}
	if err := unix.Setfsgid(gid); err != nil {
		return fmt.Errorf("set group: %w", err)
	}
	if err := unix.Setfsuid(uid); err != nil {
		return fmt.Errorf("set user: %w", err)
	}
	if now, err := unix.SetfsuidRetUid(-1); err != nil || now != uid { // the call itself does not say
		return fmt.Errorf("set user: the kernel kept %d", now)
	}
	return nil
}

// cannotRead is the message to root about a file that the user of the service may not read.
func cannotRead(path string, u *user.User) string {
	group := u.Gid
	if g, err := user.LookupGroupId(u.Gid); err == nil {
		group = g.Name
	}
	return fmt.Sprintf("%[1]s: the daemon runs as user %[2]s, who may not read it; run: chgrp %[3]s %[1]s && chmod g+r %[1]s (and let that user into its directory)", path, u.Username, group)
}
