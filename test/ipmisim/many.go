package ipmisim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/clock"
	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/server"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// Many is a BMC at every address of 127.0.0.0/8 from 127.1.0.0 on, at one port: hundreds of thousands of hosts behind one socket. Each
// has the GUID of ManyUUID, and its own power. They have one account, and share the sessions. Datagrams are answered one after the other.
type Many struct {
	conn *manyConn
	srv  *server.Server
	done chan struct{}
}

// ManyAddress is the address of the BMC with a number, without the port.
func ManyAddress(number int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+number>>16, number>>8&0xff, number&0xff)
}

// ManyUUID is the GUID of the BMC with a number.
func ManyUUID(number int) string { return fmt.Sprintf("%08x-0000-4000-8000-5ca1ab1e0000", number) }

// StartMany starts them all. User, Password, Operator and Suites of the options count.
func StartMany(ctx context.Context, o Options) (*Many, error) {
	o, _, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start BMCs: %w", err)
	}
	suites, err := suiteIDs(o.Suites)
	if err != nil {
		return nil, fmt.Errorf("start BMCs: %w", err)
	}
	conn, err := listenMany(ctx)
	if err != nil {
		return nil, fmt.Errorf("start BMCs: %w", err)
	}
	state := bmc.New(device, [16]byte{}, manyHardware{mock.New(), conn}, bmc.WithCipherSuites(suites), bmc.WithV15Disabled())
	state.Sessions = bmc.NewSessionStoreWithOptions(clock.Real, bmc.WithMaxSessions(1<<12))
	if err := addAccount(state.Users, o); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start BMCs: %w", err)
	}
	conn.state = state
	m := &Many{conn: conn, srv: server.NewServer(state, conn), done: make(chan struct{})}
	go func() {
		defer close(m.done)
		_ = m.srv.Serve(ctx) // ends with Close, and has nothing to tell then
	}()
	return m, nil
}

func (m *Many) Stop() {
	_ = m.srv.Close()
	<-m.done
}

func (m *Many) Port() int { return m.conn.port }

// FirstAsked is when the first datagram came to the BMC with a number; zero if none came.
func (m *Many) FirstAsked(number int) time.Time {
	m.conn.mu.Lock()
	defer m.conn.mu.Unlock()
	return m.conn.hosts[number].first
}

// Reset forgets how often the BMCs were asked, and when.
func (m *Many) Reset() {
	m.conn.mu.Lock()
	defer m.conn.mu.Unlock()
	m.conn.statuses = 0
	for i, h := range m.conn.hosts {
		h.asked, h.first = 0, time.Time{}
		m.conn.hosts[i] = h
	}
}

// Tally is what all BMCs together were asked.
type Tally struct {
	BMCs, Datagrams, Statuses int   // how many BMCs were asked, and what
	Switched                  []int // the numbers of the hosts that were switched off or on, in no order
}

// Tally counts since the start, or the last Reset; Switched is since the start.
func (m *Many) Tally() (t Tally) {
	m.conn.mu.Lock()
	defer m.conn.mu.Unlock()
	t.Statuses = m.conn.statuses
	for i, h := range m.conn.hosts {
		if h.asked > 0 {
			t.BMCs++
		}
		t.Datagrams += h.asked
		if h.switched {
			t.Switched = append(t.Switched, i)
		}
	}
	return t
}

type manyHost struct {
	asked    int
	first    time.Time
	off      bool
	switched bool
}

// manyConn hands the server of go-ipmi one datagram after the other: it waits for the answer to one before it gives the next. So the GUID and
// the power of the host that is asked can be set before.
type manyConn struct {
	*ipv4.PacketConn
	port     int
	state    *bmc.BMC
	answered chan struct{}
	waits    bool // the server has a datagram

	mu       sync.Mutex
	now      int // the number of the host that is asked
	statuses int
	hosts    map[int]manyHost
}

// answerWait is how long an answer may take. Some datagrams have none.
const answerWait = 100 * time.Millisecond

// ListenLoopback listens on all addresses, but only of the loopback device: nobody outside can reach it.
func ListenLoopback(ctx context.Context) (conn net.PacketConn, port int, err error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), "lo") })
		if err != nil {
			return err
		}
		return bound
	}}
	if conn, err = lc.ListenPacket(ctx, "udp4", "0.0.0.0:0"); err != nil {
		return nil, 0, err
	}
	return conn, conn.LocalAddr().(*net.UDPAddr).Port, nil
}

func listenMany(ctx context.Context) (*manyConn, error) {
	conn, port, err := ListenLoopback(ctx)
	if err != nil {
		return nil, err
	}
	c := &manyConn{PacketConn: ipv4.NewPacketConn(conn), port: port, answered: make(chan struct{}, 1), hosts: map[int]manyHost{}}
	if err := errors.Join(conn.(*net.UDPConn).SetReadBuffer(4<<20), c.SetControlMessage(ipv4.FlagDst, true)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// manyPeer is a client, and the address at which it asked.
type manyPeer struct {
	net.Addr
	asked net.IP
}

// ReadFrom gives the next datagram.
func (c *manyConn) ReadFrom(buf []byte) (int, net.Addr, error) {
	if c.waits {
		select {
		case <-c.answered:
		case <-time.After(answerWait):
		}
		c.waits = false
	}
	n, about, from, err := c.PacketConn.ReadFrom(buf)
	if err != nil || about == nil {
		return n, from, err
	}
	number, ok := manyNumber(about.Dst)
	if !ok {
		return 0, nil, fmt.Errorf("no BMC is at %s", about.Dst)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hosts[number]
	if h.asked++; h.asked == 1 {
		h.first = time.Now()
	}
	c.hosts[number], c.now, c.waits = h, number, true
	_, c.state.GUID, _ = Options{UUID: ManyUUID(number)}.withDefaults() // ManyUUID is one
	return n, manyPeer{from, about.Dst}, nil
}

// WriteTo answers from the address that was asked.
func (c *manyConn) WriteTo(data []byte, to net.Addr) (int, error) {
	peer := to.(manyPeer)
	n, err := c.PacketConn.WriteTo(data, &ipv4.ControlMessage{Src: peer.asked}, peer.Addr)
	select {
	case c.answered <- struct{}{}:
	default:
	}
	return n, err
}

func manyNumber(ip net.IP) (int, bool) {
	addr, ok := netip.AddrFromSlice(ip.To4())
	if !ok {
		return 0, false
	}
	b := addr.As4()
	n := int(binary.BigEndian.Uint32(b[:])) - 127<<24 - 1<<16
	return n, b[0] == 127 && n >= 0
}

// manyHardware is the chassis of the host that is asked.
type manyHardware struct {
	*mock.HAL
	conn *manyConn
}

func (h manyHardware) Chassis() hal.ChassisHAL { return &manyChassis{conn: h.conn} }

type manyChassis struct {
	mock.Chassis // everything that is not power
	conn         *manyConn
}

// PowerState is what Get Chassis Status reports.
func (c *manyChassis) PowerState(context.Context) (bool, error) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.conn.statuses++
	return !c.conn.hosts[c.conn.now].off, nil
}

// SetPower is Chassis Control with power up or power down.
func (c *manyChassis) SetPower(_ context.Context, on bool) error {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	h := c.conn.hosts[c.conn.now]
	h.off, h.switched = !on, true
	c.conn.hosts[c.conn.now] = h
	return nil
}
