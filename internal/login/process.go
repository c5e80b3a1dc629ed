package login

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

// noLogin is the login uid of a process that belongs to no login.
const noLogin = math.MaxUint32

// Why the login of a process cannot be told.
var (
	ErrEnded   = errors.New("it has ended")
	ErrHidden  = errors.New("/proc does not show it (by its option hidepid=, or ProtectProc= of the unit)")
	ErrForeign = errors.New("it runs in another PID namespace")
)

// ErrNotKept is that this kernel keeps no login uids (one without audit): then no process has one.
var ErrNotKept = errors.New("this kernel keeps no login uids")

// Process is one process, whatever its pid leads to by now. Close it.
type Process struct{ pidfd *os.File }

// Connected gives the process that connected to a unix socket, of which the kernel tells the pid. Before Linux 6.5 it tells nothing
// else: there it is the process that has that pid now.
func Connected(socket int, pid int32) (*Process, error) {
	if pid <= 0 {
		return nil, ErrForeign
	}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		fd, err = unix.PidfdOpen(int(pid), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return held(fd), nil
}

func held(pidfd int) *Process { return &Process{os.NewFile(uintptr(pidfd), "pidfd")} }

// Close lets the process go.
func (p *Process) Close() error { return p.pidfd.Close() }

// UID reads who logged in; ok is false when the process belongs to no login. It is ErrNotKept where none can. A process that cannot be
// looked at is an error, for its login may be anybody's.
func (p *Process) UID() (uid uint32, ok bool, err error) {
	pid, err := p.pid()
	if err != nil {
		return 0, false, err
	}
	dir, err := os.OpenRoot("/proc/" + strconv.Itoa(pid)) // stays that of one process, and empty when it has ended
	if err != nil {
		return 0, false, p.unseen(err)
	}
	defer dir.Close()
	text, err := dir.ReadFile("loginuid")
	if dead := p.alive(); dead != nil { // what was read may be of nobody, or of another process
		return 0, false, dead
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = dir.Stat("status"); err != nil {
			return 0, false, p.unseen(err)
		}
		return 0, false, ErrNotKept
	}
	if err != nil {
		return 0, false, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0, false, err
	}
	return uint32(n), n != noLogin, nil
}

// use gives the number of the descriptor, which leads to this process until f returns, though another goroutine closes it meanwhile.
func (p *Process) use(f func(pidfd int) error) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// pid is what the process is called in /proc, as the kernel says of the pidfd.
func (p *Process) pid() (int, error) {
	var text []byte
	err := p.use(func(pidfd int) (err error) {
		text, err = os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
		return err
	})
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "\nPid:")
	if !ok {
		return 0, errors.New("the descriptor is of no process")
	}
	line, _, _ := strings.Cut(rest, "\n")
	switch pid, err := strconv.Atoi(strings.TrimSpace(line)); {
	case err != nil:
		return 0, err
	case pid < 0:
		return 0, ErrEnded
	case pid == 0:
		return 0, ErrForeign
	default:
		return pid, nil
	}
}

// unseen returns why a process has no directory.
func (p *Process) unseen(err error) error {
	if dead := p.alive(); dead != nil {
		return dead
	}
	return fmt.Errorf("%w: %w", ErrHidden, err)
}

// alive says that the process had not ended at this moment: what was read of it before this is its own.
func (p *Process) alive() error {
	return p.use(func(pidfd int) error {
		for {
			ended, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return err
			case ended > 0:
				return ErrEnded
			default:
				return nil
			}
		}
	})
}
