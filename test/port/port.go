// Package port finds ports for programs that cannot choose one themselves.
package port

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// The ports are below those that the kernel gives to outgoing sockets and to listeners
// without a port of their own, so that nobody takes one while a program starts, or starts
// again.
const first, many = 10_000, 22_000

// last is the number of the port that this process tried last; processes begin apart.
var last atomic.Int64

func init() { last.Store(int64(os.Getpid()) * 97) }

// Free is an address of a host at which nobody listens now. The network is tcp or udp.
func Free(network, host string) (string, error) {
	for range many {
		addr := net.JoinHostPort(host, strconv.FormatInt(first+last.Add(1)%many, 10))
		if Try(network, addr) == nil {
			return addr, nil
		}
	}
	return "", fmt.Errorf("no %s port of %s from %d to %d is free", network, host, first, first+many-1)
}

// Try says why nobody can listen at an address now; nil when somebody could.
func Try(network, addr string) error {
	if network == "udp" {
		conn, err := net.ListenPacket(network, addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	return l.Close()
}
