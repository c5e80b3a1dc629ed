package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/k8swatch"
)

// checkPolicies finds what is wrong in policies.d.
func checkPolicies(cfg config.Config) (warnings []string, err error) {
	if _, err = loadPolicies(cfg); err != nil {
		return nil, config.InPart{Err: err}
	}
	return nil, nil
}

// checkRestart adds what only --check-config checks, because the daemon notices it by itself when it
// starts: whether each kubeconfig can be used, whether the user of the service may read every file,
// and whether the port of the metrics is free.
func checkRestart(cfg config.Config) (warnings []string, err error) {
	_, err = checkPolicies(cfg)
	ofKube, kubeErr := checkKubeconfigs(cfg)
	ofUser, userErr := checkServiceUser(cfg)
	warnings = append(ofKube, ofUser...)
	if w := checkPort(cfg.Metrics.Listen); w != "" {
		warnings = append(warnings, cfg.File+": metrics.listen: "+w)
	}
	return warnings, errors.Join(err, kubeErr, userErr)
}

func checkKubeconfigs(cfg config.Config) (warnings []string, err error) {
	var errs []error
	for _, path := range config.Kubeconfigs(cfg) {
		secrets, err := k8swatch.CheckKubeconfig(path)
		errs = append(errs, err)
		for _, file := range secrets {
			if fi, err := os.Stat(file); err == nil && fi.Mode()&0o004 != 0 {
				warnings = append(warnings, fmt.Sprintf("%s, which %s names: everybody may read it (mode %04o), and it is a secret; run: %s", file, path, fi.Mode().Perm(), config.HideSecret(file)))
			}
		}
	}
	return warnings, errors.Join(errs...)
}

// checkServiceUser finds the files that root, who runs the check, may read and the user of the service
// may not. For a password file it only warns, because it concerns one host.
func checkServiceUser(cfg config.Config) (warnings []string, err error) {
	u := serviceUser(cfg.State.Path)
	if u == nil {
		return nil, nil
	}
	var errs []error
	ofHosts, kubeconfigs := config.HostFiles(cfg), goodKubeconfigs(cfg) // as root finds them
	err = asUser(u, func() {
		for _, path := range append(config.OwnFiles(cfg), cfg.State.Etcd.CA, cfg.State.Etcd.Cert, cfg.State.Etcd.Key) {
			if denied(path) {
				errs = append(errs, errors.New(cannotRead(path, u)))
			}
		}
		for _, path := range kubeconfigs {
			if denied(path) {
				errs = append(errs, errors.New(cannotRead(path, u)))
			} else if _, err := k8swatch.CheckKubeconfig(path); err != nil { // a file that it names
				errs = append(errs, fmt.Errorf("the daemon runs as user %s: %w", u.Username, err))
			}
		}
		for _, path := range ofHosts {
			if denied(path) {
				warnings = append(warnings, cannotRead(path, u))
			}
		}
	})
	if err != nil { // a container may forbid it
		warnings = append(warnings, "what the user of the daemon may read could not be found out: "+err.Error())
	}
	return warnings, errors.Join(errs...)
}

// goodKubeconfigs are those that root can use; of the others it is told why not.
func goodKubeconfigs(cfg config.Config) []string {
	return slices.DeleteFunc(config.Kubeconfigs(cfg), func(path string) bool {
		_, err := k8swatch.CheckKubeconfig(path)
		return err != nil
	})
}

// denied returns whether the thread that asks may not read a file. Whatever else is wrong with
// the file was found before.
func denied(path string) bool {
	if path == "" {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe blocks nobody
	if err == nil {
		_ = f.Close() // it was only opened
	}
	return errors.Is(err, fs.ErrPermission)
}

// portTime bounds the question whose port it is.
const portTime = 2 * time.Second

// checkPort returns why metrics could not be served, or an empty string if they could, or if a running fenced
// serves its own there.
func checkPort(addr string) string {
	if addr == "" {
		return ""
	}
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		_ = ln.Close() // it was only tried
		return ""
	}
	if errors.Is(err, syscall.EADDRINUSE) && servesFenced(addr) {
		return ""
	}
	return fmt.Sprintf("%v; the daemon would run without metrics and try again, and fencing goes on: stop the other program, or choose another port", err)
}

// servesFenced returns whether fenced itself answers there.
func servesFenced(addr string) bool {
	client := http.Client{Timeout: portTime, Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + "/metrics")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	return err == nil && bytes.Contains(text, []byte("\nfenced_build_info{"))
}

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
