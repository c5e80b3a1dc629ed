package api

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	dialTime = 5 * time.Second
	// dialAgain is how soon a full queue of connections is tried again.
	dialAgain = time.Millisecond
)

// dial connects to the daemon. While more want to connect than it has let in, it tries again.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(dialing, "unix", socket)
		if err == nil {
			return &refusableConn{Conn: c, asked: make(chan struct{})}, nil
		}
		if !errors.Is(err, syscall.EAGAIN) || dialing.Err() != nil {
			return nil, err
		}
		select {
		case <-dialing.Done():
		case <-time.After(dialAgain):
		}
	}
}

// refusableConn is a connection that the daemon may refuse before it has read the request: what it
// answered is read all the same, once the request was sent, although that failed.
type refusableConn struct {
	net.Conn
	once  sync.Once
	asked chan struct{} // closed after the first write, or when it is closed
}

func (c *refusableConn) Read(b []byte) (int, error) {
	<-c.asked
	return c.Conn.Read(b)
}

func (c *refusableConn) Write(b []byte) (int, error) {
	defer c.once.Do(func() { close(c.asked) })
	n, err := c.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return len(b), nil // why, is for Read to say
	}
	return n, err
}

// Close ends the connection.
func (c *refusableConn) Close() error {
	c.once.Do(func() { close(c.asked) })
	return c.Conn.Close()
}
