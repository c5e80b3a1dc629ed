package ipmisim

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/transport"
)

// faultyConn is the socket of a GoBMC with the faults that are seen there.
type faultyConn struct {
	transport.PacketConn

	asked atomic.Int64 // datagrams that came

	mu       sync.Mutex
	hung     bool
	slow     time.Duration
	guid     *[16]byte // to be the BMC's from the next datagram on
	sessions []uint32  // the ids that the BMC gave out
	state    *bmc.BMC
}

// ReadFrom gives the next datagram that the BMC may see.
func (c *faultyConn) ReadFrom(buf []byte) (int, net.Addr, error) {
	for {
		n, addr, err := c.PacketConn.ReadFrom(buf)
		if err == nil {
			c.asked.Add(1)
		}
		if err != nil || !c.drops() {
			return n, addr, err
		}
	}
}

// drops says whether the BMC is deaf. It also changes the GUID here, where no
// handler can be reading it unless one is at work at this moment.
func (c *faultyConn) drops() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.guid != nil {
		c.state.GUID, c.guid = *c.guid, nil
	}
	return c.hung
}

// WriteTo sends an answer, at once or late.
func (c *faultyConn) WriteTo(data []byte, addr net.Addr) (int, error) {
	c.mu.Lock()
	c.note(data)
	hung, slow := c.hung, c.slow
	c.mu.Unlock()
	switch {
	case hung:
		return len(data), nil
	case slow > 0:
		late := append([]byte(nil), data...)
		time.AfterFunc(slow, func() { _, _ = c.PacketConn.WriteTo(late, addr) }) // lost when the BMC was stopped
		return len(data), nil
	}
	return c.PacketConn.WriteTo(data, addr)
}

// note remembers the session id in an Open Session Response.
func (c *faultyConn) note(data []byte) {
	const idAt = 16 + 8 // RMCP+ header, then tag, status, level, console's id
	if (Datagram{Data: data}).Payload() != PayloadOpenResponse || len(data) < idAt+4 {
		return
	}
	live := c.sessions[:0]
	for _, id := range c.sessions {
		if _, err := c.state.Sessions.Get(id); err == nil {
			live = append(live, id)
		}
	}
	c.sessions = append(live, binary.LittleEndian.Uint32(data[idAt:]))
}
