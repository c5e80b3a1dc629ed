package rig

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// port is a loopback port that stays reserved. The socket is bound with
// SO_REUSEPORT and never listens. A program of the same user can listen on the
// port if it also uses SO_REUSEPORT; others cannot, and the kernel gives the port
// to no outgoing connection. While no program listens, clients are refused at
// once. So an API server can stop and restart on its port.
type port struct {
	fd     int
	number int
}

func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("socket", err))
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("setsockopt", err))
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("bind", err))
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", os.NewSyscallError("getsockname", err))
	}
	return &port{fd: fd, number: sa.(*unix.SockaddrInet4).Port}, nil
}

func (p *port) address() string { return fmt.Sprintf("127.0.0.1:%d", p.number) }

func (p *port) release() {
	if p != nil {
		_ = unix.Close(p.fd)
	}
}
