package redfish

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/fenced/fenced/internal/bmc"
)

// errOtherConnection marks a command that was not sent because the connection
// over which the system was read is closed.
var errOtherConnection = failf(bmc.KindUnreachable, "the connection on which the system was read has closed: the command is not sent on another one")

// lastConnection is the connection of the last answer. A session token is invalid
// at another BMC with the same address; a user name and a password may be valid
// there. So a command with Basic authentication is sent on this connection
// only. // I8
type lastConnection struct {
	mu     sync.Mutex
	conn   net.Conn
	closes bool // the connection was to end with the answer
}

func (p *lastConnection) record(conn net.Conn, closes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.closes = conn, closes
}

// isClosing reports whether the connection was to end with the answer.
func (p *lastConnection) isClosing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closes
}

// endedByPeer reports whether err means that the other side ended the connection.
func endedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// allows reports whether a command may be sent on conn: it is the same
// connection. If the service closes each connection, the next one is allowed,
// once.
func (p *lastConnection) allows(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.closes && p.conn != nil
	same := p.conn == conn && conn != nil
	if next {
		p.conn = nil
	}
	return same || next
}

// mayCarry reports whether req may be sent on conn, and counts actions.
func (t *transport) mayCarry(req *http.Request, conn net.Conn) bool {
	if !isAction(req) {
		return true
	}
	if isBasic(req) && !t.read.allows(conn) {
		return false
	}
	t.carried.Add(1)
	return true
}
