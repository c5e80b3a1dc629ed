package ipmisim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// Payload types that a datagram through a Relay can have, without its flags.
const (
	PayloadIPMI         = 0x00
	PayloadOpenRequest  = 0x10
	PayloadOpenResponse = 0x11
	PayloadRAKP1        = 0x12
	PayloadRAKP2        = 0x13
	PayloadRAKP3        = 0x14
	PayloadRAKP4        = 0x15
)

// Datagram is one on its way through a Relay.
type Datagram struct {
	FromBMC bool
	Data    []byte
	client  netip.AddrPort
}

// Payload is the RMCP+ payload type, -1 for anything that is not RMCP+.
func (d Datagram) Payload() int {
	if len(d.Data) < 16 || d.Data[4] != 0x06 {
		return -1
	}
	return int(d.Data[5] & 0x3f)
}

// With is a datagram in the same direction with other bytes.
func (d Datagram) With(data []byte) Datagram {
	d.Data = data
	return d
}

// Reply is a datagram back to the sender of d, as a man in the middle forges it.
func (d Datagram) Reply(data []byte) Datagram {
	return Datagram{FromBMC: !d.FromBMC, Data: data, client: d.client}
}

// clientIdle is how long a client's socket towards the BMC is kept for the next
// datagram: a client that was killed says no goodbye.
const clientIdle = 2 * time.Minute

// Relay stands between clients and one BMC, as a hostile or lossy network does.
type Relay struct {
	front  *net.UDPConn
	target string

	mu      sync.Mutex
	filter  func(Datagram) []Datagram
	network *network
	seen    []Datagram
	asked   int // datagrams of clients
	back    map[netip.AddrPort]net.Conn
	idle    time.Duration
	stopped bool
	wg      sync.WaitGroup
}

// StartRelay starts a relay to target that changes nothing yet.
func StartRelay(target string) (*Relay, error) {
	front, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		return nil, fmt.Errorf("start relay: %w", err)
	}
	r := &Relay{front: front, target: target, idle: clientIdle, back: map[netip.AddrPort]net.Conn{}}
	r.wg.Add(1)
	go r.fromClients()
	return r, nil
}

// Addr is where clients find the BMC.
func (r *Relay) Addr() string { return r.front.LocalAddr().String() }

// Filter decides what becomes of each datagram: the ones fn returns are sent on,
// in order, none if it is dropped. nil passes all. fn is called by one goroutine
// at a time.
func (r *Relay) Filter(fn func(Datagram) []Datagram) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filter = fn
}

// Seen are the datagrams that reached the relay so far, before the filter.
func (r *Relay) Seen() []Datagram {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Datagram(nil), r.seen...)
}

// Asked is how many datagrams clients sent so far. Without loss each is one
// round trip, because a client waits for the answer before it sends the next.
func (r *Relay) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// Send sends d now, past the filter: for late and replayed datagrams.
func (r *Relay) Send(d Datagram) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.send(d)
}

// Stop ends the relay; it may be called more than once.
func (r *Relay) Stop() {
	r.mu.Lock()
	r.stopped = true
	_ = r.front.Close()
	for _, c := range r.back {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *Relay) fromClients() {
	defer r.wg.Done()
	buf := make([]byte, 4096)
	for {
		n, client, err := r.front.ReadFromUDPAddrPort(buf)
		if err != nil {
			return // closed
		}
		r.pass(Datagram{Data: append([]byte(nil), buf[:n]...), client: client})
	}
}

func (r *Relay) fromBMC(back net.Conn, client netip.AddrPort) {
	defer r.wg.Done()
	buf := make([]byte, 4096)
	for {
		n, err := back.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.forget(client)
			return
		}
		if err != nil {
			continue // the BMC's port is closed, perhaps only while it restarts
		}
		r.pass(Datagram{FromBMC: true, Data: append([]byte(nil), buf[:n]...), client: client})
	}
}

// forget closes a client's socket; its next datagram gets another one.
func (r *Relay) forget(client netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.back[client].Close()
	delete(r.back, client)
}

// pass records d and sends on what the filter makes of it.
func (r *Relay) pass(d Datagram) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, d)
	if !d.FromBMC {
		r.asked++
	}
	out := []Datagram{d}
	if r.filter != nil {
		out = r.filter(d)
	}
	for _, d := range out {
		r.carry(d)
	}
}

// send puts d on the wire; a datagram that cannot be sent is lost, as on any
// network. Each client has a socket of its own towards the BMC.
func (r *Relay) send(d Datagram) {
	if r.stopped {
		return
	}
	if d.FromBMC {
		_, _ = r.front.WriteToUDPAddrPort(d.Data, d.client)
		return
	}
	back, ok := r.back[d.client]
	if !ok {
		var err error
		if back, err = net.Dial("udp", r.target); err != nil {
			return
		}
		r.back[d.client] = back
		r.wg.Add(1)
		go r.fromBMC(back, d.client)
	}
	_ = back.SetReadDeadline(time.Now().Add(r.idle))
	_, _ = back.Write(d.Data)
}

// Network is how badly a Relay's network carries what its filter lets through.
// The zero value is the perfect one.
type Network struct {
	// Delay is added to each round trip, half of it each way, and up to Jitter
	// more to each datagram.
	Delay, Jitter time.Duration
	// Loss, Double and Reorder are how likely a datagram is lost, arrives twice, or
	// is overtaken by the next one of its direction; between 0 and 1.
	Loss, Double, Reorder float64
	// Seed makes two relays with the same traffic behave alike.
	Seed uint64
}

// Network makes the relay's network as n from now on.
func (r *Relay) Network(n Network) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.network = &network{Network: n, dice: rand.New(rand.NewPCG(n.Seed, n.Seed))}
}

// Delay adds d to each round trip, half of it each way.
func (r *Relay) Delay(d time.Duration) { r.Network(Network{Delay: d}) }

// network is a Network with its memory.
type network struct {
	Network
	dice *rand.Rand
	held map[bool]Datagram // those that wait to be overtaken, by direction
}

// carry gives d to the network. The relay is locked.
func (r *Relay) carry(d Datagram) {
	n := r.network
	if n == nil {
		r.send(d)
		return
	}
	for _, d := range n.arriving(d) {
		wait := n.Delay / 2
		if n.Jitter > 0 {
			wait += time.Duration(n.dice.Int64N(int64(n.Jitter)))
		}
		if wait == 0 {
			r.send(d)
			continue
		}
		time.AfterFunc(wait, func() { r.Send(d) })
	}
}

// arriving is what becomes of d: nothing, d, d twice, d and one it overtook.
func (n *network) arriving(d Datagram) []Datagram {
	if n.dice.Float64() < n.Loss {
		return nil
	}
	out := []Datagram{d}
	if n.dice.Float64() < n.Double {
		out = append(out, d)
	}
	if late, waiting := n.held[d.FromBMC]; waiting {
		delete(n.held, d.FromBMC)
		return append(out, late)
	}
	if n.dice.Float64() < n.Reorder {
		if n.held == nil {
			n.held = map[bool]Datagram{}
		}
		n.held[d.FromBMC] = d
		return out[1:]
	}
	return out
}
