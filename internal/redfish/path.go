package redfish

import (
	"net"
	"net/http"
	"sync"

	"github.com/fenced/fenced/internal/bmc"
)

// errOtherConnection marks a command that was not sent, for want of the connection
// over which the system was read.
var errOtherConnection = failf(bmc.KindUnreachable, "the connection on which the system was read has closed: the command is not sent on another one")

// path is the connection that answered last. A session token means nothing to
// another BMC at the same address; a user name and a password may. Such a command
// goes the way of the answer, and not to whoever takes the next connection. // I8
type path struct {
	mu     sync.Mutex
	conn   net.Conn
	closes bool // the answer announced the end of the connection
}

func (p *path) was(conn net.Conn, closes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.closes = conn, closes
}

// ended says whether the connection was announced to end.
func (p *path) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closes
}

// leads says whether conn is that connection. Where the service ends each one, the
// one that follows has to do, once.
func (p *path) leads(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.closes && p.conn != nil
	same := p.conn == conn && conn != nil
	if next {
		p.conn = nil
	}
	return same || next
}

// carry says whether conn may take req, and counts the actions among them.
func (t *transport) carry(req *http.Request, conn net.Conn) bool {
	if !isAction(req) {
		return true
	}
	if isBasic(req) && !t.read.leads(conn) {
		return false
	}
	t.carried.Add(1)
	return true
}
