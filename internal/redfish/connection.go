package redfish

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

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

// mayCarry returns why req may not be sent on conn, nil if it may, and counts actions.
func (t *transport) mayCarry(req *http.Request, conn net.Conn) error {
	if !isAction(req) {
		return nil
	}
	if err := bmc.Over(req.Context(), time.Now()); err != nil { // I19
		return err
	}
	if isBasic(req) && !t.read.allows(conn) {
		return errOtherConnection
	}
	t.carried.Add(1)
	return nil
}

// minBootTime is less than any BMC needs to restart.
const minBootTime = 5 * time.Second

// restartDetector holds what the transport saw last. It detects a restart of the
// BMC between two successful answers.
type restartDetector struct {
	mu       sync.Mutex
	answered time.Time // time of the last answer; zero before the first
	closing  bool      // the connection of that answer was to end with it
	// silent: the service ends connections without a word, so it is asked to end each
	// one with its answer.
	silent bool
}

// indicatesRestart reports whether the BMC may have restarted between the last
// answer and this one, which came at now. // I1
//
// A restart ends every TCP connection, so an answer on an old connection excludes
// one. A new connection is only a hint, because some services close connections
// after a while or after each answer. It counts if there was enough time for a
// boot. With Basic authentication no session can show a restart; then it always
// counts, unless the end of the old connection was announced or asked for. So a
// service that ends connections without a word seems to restart once, and is then
// asked to end each one.
func (s *restartDetector) indicatesRestart(fresh, basic, closing bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hidden, silent := false, false
	if fresh && !s.answered.IsZero() {
		hidden = s.hadTimeToBoot(now)
		silent = !hidden && basic && !s.closing
	}
	s.silent = silent || s.silent && !hidden
	s.answered, s.closing = now, closing || silent
	return hidden || silent
}

// lostConnection records that the connection of the last answer had ended at now,
// when the next request was to be sent on it.
func (s *restartDetector) lostConnection(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.answered.IsZero() && !s.closing && !s.hadTimeToBoot(now) {
		s.silent, s.closing = true, true
	}
}

// hadTimeToBoot reports whether a BMC can have booted since the last answer. s.mu is
// held.
func (s *restartDetector) hadTimeToBoot(now time.Time) bool {
	return now.Sub(s.answered) >= minBootTime
}

// endsSilently reports whether the service ends connections without a word.
func (s *restartDetector) endsSilently() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// isBasic reports whether req carries the password itself.
func isBasic(req *http.Request) bool {
	_, _, ok := req.BasicAuth()
	return ok
}
