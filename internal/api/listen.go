package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// socketMode lets the socket's group in; roles decide what its members may do.
const socketMode = 0o660

// Listen makes the control socket with mode 0660. A path left by a daemon that died is
// removed, but only if it is a socket and nobody answers there.
func Listen(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The mode set before bind is the mode the path is born with: at no moment
	// is it wider than at the end, whatever the umask.
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		ctlErr := raw.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(ctlErr, err)
	}}
	ln, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("set the mode of %s: %w", path, err), ln.Close())
	}
	return ln, nil
}

// SetGroup gives the socket to a group, if it is not its own already by its directory.
func SetGroup(path, group string) error {
	g, err := user.LookupGroup(group)
	if err != nil {
		return fmt.Errorf("find the group of %s: %w", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && strconv.FormatUint(uint64(s.Gid), 10) == g.Gid {
		return nil
	}
	gid, err := strconv.Atoi(g.Gid)
	if err == nil {
		err = os.Lchown(path, -1, gid)
	}
	if err != nil {
		return fmt.Errorf("give %s to group %s: %w", path, group, err)
	}
	return nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on %s: it exists and is not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("listen on %s: another fenced answers there", path), c.Close())
	}
	// Only a refusal proves that nobody listens; a full backlog does not.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: a socket is there and its owner is in doubt: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the stale socket: %w", err)
	}
	return nil
}
