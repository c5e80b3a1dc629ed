package api

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Login is the user who logged in at the beginning of a session. sudo and su change
// who a process is and leave this as it is.
type Login struct {
	UID  uint32
	User string // "" when the user has no name here
}

// noLogin is the login uid of a process that belongs to no login.
const noLogin = math.MaxUint32

// loginOf gives the login of the process that connected: nil when it belongs to none,
// or when this kernel keeps none (a container without audit). A process that cannot be
// looked at is an error, for its login may be anybody's.
func loginOf(socket int, pid int32) (*Login, error) {
	peer, err := openPeer(socket, pid)
	if err != nil {
		return nil, fmt.Errorf("read the login uid of process %d: %w", pid, err)
	}
	defer peer.close()
	text, err := peer.dir.ReadFile("loginuid")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the login uid of process %d: %w", pid, err)
	}
	if dead := peer.alive(); dead != nil { // what was read may be of nobody, or of another process
		return nil, fmt.Errorf("read the login uid of process %d: %w", pid, dead)
	}
	if err != nil {
		return nil, nil
	}
	uid, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the login uid of process %d: %w", pid, err)
	}
	if uid == noLogin {
		return nil, nil
	}
	return &Login{UID: uint32(uid), User: userName(uint32(uid))}, nil
}

// peerProcess is the process that connected. Its directory stays that of one process:
// when that has ended nothing can be read there, whoever has the pid then.
type peerProcess struct {
	dir   *os.Root
	pidfd int // of the process that connected, whatever its pid leads to by now; -1 before Linux 6.5
}

// Why a process that connected cannot be looked at.
var (
	errEnded  = errors.New("it has ended")
	errHidden = errors.New("it is hidden from fenced (by ProtectProc= of its unit, or hidepid= of /proc)")
)

// openPeer finds the process that connected. Before Linux 6.5 nothing but its pid is
// known, so there it is found only as long as no other process has got that.
func openPeer(socket int, pid int32) (*peerProcess, error) {
	p := &peerProcess{pidfd: -1}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case err == nil:
		p.pidfd = fd
	case !errors.Is(err, unix.ENOPROTOOPT):
		return nil, fmt.Errorf("%w: %w", errEnded, err)
	}
	if pid <= 0 {
		p.close()
		return nil, errors.New("it runs in another PID namespace")
	}
	if p.dir, err = os.OpenRoot("/proc/" + strconv.Itoa(int(pid))); err != nil {
		defer p.close()
		return nil, fmt.Errorf("%w: %w", p.unseen(), err)
	}
	return p, nil
}

// unseen says why a process has no directory.
func (p *peerProcess) unseen() error {
	if p.pidfd < 0 {
		return fmt.Errorf("%w, or %w", errEnded, errHidden)
	}
	if err := p.alive(); err != nil {
		return err
	}
	return errHidden
}

// alive says that the process had not ended at this moment: what was read of it
// before this is its own.
func (p *peerProcess) alive() error {
	if p.pidfd < 0 {
		if _, err := p.dir.Stat("status"); err != nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		return nil
	}
	for {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case ended > 0:
			return errEnded
		default:
			return nil
		}
	}
}

func (p *peerProcess) close() {
	if p.dir != nil {
		_ = p.dir.Close() // it was only read
	}
	if p.pidfd >= 0 {
		_ = unix.Close(p.pidfd)
	}
}
