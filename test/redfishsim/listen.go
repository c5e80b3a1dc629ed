package redfishsim

import (
	"net"
	"time"
)

// listener accepts connections as the network and the BMC's kernel would.
type listener struct {
	net.Listener
	srv *Server
}

// Accept gives the next connection that anyone will answer.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.srv.mu.Lock()
		f := l.srv.faults
		if f.HalfOpen {
			l.srv.held = append(l.srv.held, c)
		}
		l.srv.mu.Unlock()
		switch {
		case f.HalfOpen: // the kernel accepted; nobody reads
		case f.RTT > 0:
			return distant(c, f.RTT), nil
		default:
			return c, nil
		}
	}
}

// distant is c as seen over a network with this round-trip time. The TCP
// handshake is over when we see c, so its round trip delays the first bytes.
func distant(c net.Conn, rtt time.Duration) net.Conn {
	here, there := net.Pipe()
	go carry(there, c, rtt/2, rtt)
	go carry(c, there, rtt/2, 0)
	return here
}

// parcel is bytes under way, and when they arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry copies from one connection to another, each byte after delay and the
// first ones after more than that, and closes both at the end of either.
func carry(to, from net.Conn, delay, first time.Duration) {
	underway := make(chan parcel, 256)
	go func() {
		defer close(underway)
		opened := time.Now().Add(first)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				sent := time.Now()
				if sent.Before(opened) {
					sent = opened
				}
				underway <- parcel{b[:n], sent.Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range underway {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			_ = from.Close() // which ends the reader; what is under way is lost, as it would be
		}
	}
	_ = to.Close() // its other end may have closed it already
}

// track keeps the open connections, so that a restart can cut them.
func (s *Server) track(c net.Conn, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open {
		s.conns++
		s.open[c] = true
		return
	}
	delete(s.open, c)
}

// cut closes all connections that anyone answers.
func (s *Server) cut() {
	s.mu.Lock()
	var open []net.Conn
	for c := range s.open {
		open = append(open, c)
	}
	s.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // may be closed already
	}
}
