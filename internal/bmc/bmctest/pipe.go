package bmctest

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Pipe stands between a driver and a BMC that speaks over TCP.
type Pipe struct {
	listener net.Listener
	target   string
	wait     sync.WaitGroup

	mu      sync.Mutex
	stuck   bool
	free    *sync.Cond
	conns   map[net.Conn]bool
	stopped bool
}

// StartPipe starts a pipe on loopback to target.
func StartPipe(target string) (*Pipe, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start pipe: %w", err)
	}
	p := &Pipe{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.free = sync.NewCond(&p.mu)
	p.wait.Go(p.accept)
	return p, nil
}

// Addr is where the driver finds the BMC.
func (p *Pipe) Addr() string { return p.listener.Addr().String() }

// HalfOpen keeps all connections, takes new ones, and lets nothing pass; what
// was held back passes when it ends. It returns nil.
func (p *Pipe) HalfOpen(open bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = open
	p.free.Broadcast()
	return nil
}

// Cut ends all connections, as a BMC that restarts does.
func (p *Pipe) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // its readers notice
	}
}

// Stop ends the pipe.
func (p *Pipe) Stop() {
	p.mu.Lock()
	p.stopped, p.stuck = true, false
	p.free.Broadcast()
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.wait.Wait()
}

func (p *Pipe) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // stopped
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			_ = client.Close() // as a BMC that is not there
			continue
		}
		p.wait.Go(func() { p.carry(server, client) })
		p.wait.Go(func() { p.carry(client, server) })
	}
}

// keep remembers a pair of connections, unless the pipe has stopped.
func (p *Pipe) keep(pair ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		for _, c := range pair {
			_ = c.Close()
		}
		return false
	}
	for _, c := range pair {
		p.conns[c] = true
	}
	return true
}

// carry copies one direction until either end closes.
func (p *Pipe) carry(to io.WriteCloser, from net.Conn) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.stuck {
			p.free.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
