package ipmisim

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/clock"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"
)

// Command is one IPMI command as a BMC received it inside a session.
type Command struct {
	NetFn, Cmd byte
	Data       []byte
	From       net.Addr // nil before there is a session
}

// Reply replaces the BMC's own answer to a command.
type Reply struct {
	Code byte // completion code
	Data []byte
}

// GoBMC is go-ipmi's BMC server in this process, with a chassis of ours.
type GoBMC struct {
	addr      string
	host      *chassis
	conn      *faultyConn
	state     *bmc.BMC
	intercept atomic.Pointer[func(Command) *Reply]
	used      sync.Map // the ids of the sessions in which a command came
	stop      func()
}

var _ BMC = (*GoBMC)(nil)

// device is what the BMC says of itself: Dell's product 256 with firmware 2.85.
var device = bmc.DeviceInfo{DeviceID: 0x20, IPMIVersion: 0x20, FirmwareMajor: 2, FirmwareMinor: 0x85, ManufacturerID: 674, ProductID: 256}

// StartGo starts a BMC in this process. It runs until Stop or the end of ctx.
func StartGo(ctx context.Context, o Options) (*GoBMC, error) {
	o, guid, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start BMC: %w", err)
	}
	suites, err := suiteIDs(o.Suites)
	if err != nil {
		return nil, fmt.Errorf("start BMC: %w", err)
	}
	addr, err := net.ResolveUDPAddr("udp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("start BMC: %w", err)
	}
	conn, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("start BMC: %w", err)
	}
	b := &GoBMC{addr: conn.LocalAddr().String(), host: &chassis{on: !o.Off}}
	b.state = bmc.New(device, guid,
		hardware{HAL: mock.New(), host: b.host}, bmc.WithCipherSuites(suites), bmc.WithV15Disabled(), bmc.WithKG([]byte(o.KG)))
	if o.Sessions > 0 {
		b.state.Sessions = bmc.NewSessionStoreWithOptions(clock.Real, bmc.WithMaxSessions(o.Sessions))
		b.state.Sessions.SetOnRemove(b.state.SOL.DeactivateBySession)
	}
	if err := addAccount(b.state.Users, o); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start BMC: %w", err)
	}
	b.conn = &faultyConn{PacketConn: udp.Wrap(conn), state: b.state}
	reg := handlers.NewRegistry()
	reg.Use(b.middleware) // before the handlers: it is not applied to earlier ones
	handlers.RegisterAllHandlers(reg)
	b.serve(ctx, server.NewServer(b.state, b.conn, server.WithHandlerRegistry(reg)))
	return b, nil
}

// serve runs srv until Stop or the end of ctx.
func (b *GoBMC) serve(ctx context.Context, srv *server.Server) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(ctx) // ends with Close, and has nothing to tell then
	}()
	// Serve sees the end of ctx only between two datagrams; closing ends it now.
	release := context.AfterFunc(ctx, func() { _ = srv.Close() })
	b.stop = sync.OnceFunc(func() {
		release()
		_ = srv.Close()
		<-ended
	})
}

func suiteIDs(suites []int) ([]types.CipherSuiteID, error) {
	var ids []types.CipherSuiteID
	for _, s := range suites {
		id := types.CipherSuiteID(s)
		if s < 0 || s > 255 || !bmc.SupportedCipherSuite(id) {
			return nil, fmt.Errorf("cipher suite %d is not one go-ipmi's server has", s)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func addAccount(users *bmc.UserStore, o Options) error {
	level := bmc.PrivilegeLevelAdministrator
	if o.Operator {
		level = bmc.PrivilegeLevelOperator
	}
	if o.NullUser {
		if err := addUser(users, 1, "", "", bmc.PrivilegeLevelOperator); err != nil {
			return err
		}
	}
	return addUser(users, 2, o.User, o.Password, level)
}

func addUser(users *bmc.UserStore, number uint8, name, password string, level bmc.PrivilegeLevel) error {
	const lan = 1
	u, err := users.Add(number, name)
	if err != nil {
		return fmt.Errorf("add user %q: %w", name, err)
	}
	u.SetPassword([]byte(password))
	u.Enabled = true
	u.ChannelAccess[lan] = bmc.UserChannelAccess{Enabled: true, MaxPrivilege: level}
	return nil
}

// middleware lets Intercept see and answer commands.
func (b *GoBMC) middleware(next handlers.Handler) handlers.Handler {
	return handlers.HandlerFunc(func(ctx context.Context, h *handlers.HandlerContext, data []byte) ([]byte, types.CompletionCode, error) {
		if h.Session != nil {
			b.used.Store(h.Session.BMCID, nil)
		}
		if fn := b.intercept.Load(); fn != nil {
			c := Command{NetFn: uint8(h.Command.NetFn), Cmd: h.Command.ID, Data: append([]byte(nil), data...)}
			if h.Session != nil {
				c.From = h.Session.GetAddr()
			}
			if r := (*fn)(c); r != nil {
				return r.Data, types.CompletionCode(r.Code), nil
			}
		}
		return next.Handle(ctx, h, data)
	})
}

// Intercept calls fn for each command; a Reply that is not nil is sent in place
// of the BMC's own answer, and the command is not carried out. nil ends it.
// fn is called from several goroutines.
func (b *GoBMC) Intercept(fn func(Command) *Reply) {
	if fn == nil {
		b.intercept.Store(nil)
		return
	}
	b.intercept.Store(&fn)
}

// Addr is the host:port of the BMC.
func (b *GoBMC) Addr() string { return b.addr }

// Asked is how many datagrams came so far: round trips, where none was lost.
func (b *GoBMC) Asked() int { return int(b.conn.asked.Load()) }

// Sessions is how many sessions are open or being opened.
func (b *GoBMC) Sessions() int { return b.state.Sessions.Count() }

// Established is how many sessions are open in which a command came. One that is still being opened is not counted: a client
// whose answer comes late asks for another, and this BMC gives the place of such a one to whoever comes next.
func (b *GoBMC) Established() (n int) {
	for id := range b.used.Range {
		if _, err := b.state.Sessions.Get(id.(uint32)); err == nil {
			n++
		}
	}
	return n
}

// Power says whether the host is truly on.
func (b *GoBMC) Power() bool {
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	return b.host.on
}

// Source is Power in the form a simulated kubelet asks.
func (b *GoBMC) Source(ctx context.Context) (bool, error) { return b.Power(), ctx.Err() }

// Counts are the chassis commands so far.
func (b *GoBMC) Counts() Counts {
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	return b.host.counts
}

// Changes are the moments at which the host went on or off, in order.
func (b *GoBMC) Changes() []Change {
	b.host.mu.Lock()
	defer b.host.mu.Unlock()
	return slices.Clone(b.host.changes)
}

// OnChange calls fn when the host goes on or off, before anybody sees it.
func (b *GoBMC) OnChange(fn func(on bool)) { b.host.change(func() { b.host.onChange = fn }) }

// SetPower switches the host behind the BMC's back; it returns nil.
func (b *GoBMC) SetPower(on bool) error {
	b.host.change(func() {
		b.host.orders++
		b.host.turn(on)
	})
	return nil
}

// IgnoreOff makes the BMC accept a power off and do nothing; it returns nil.
func (b *GoBMC) IgnoreOff(ignore bool) error {
	b.host.change(func() { b.host.ignoreOff = ignore })
	return nil
}

// LieOff makes the BMC say off whatever the host is; it returns nil.
func (b *GoBMC) LieOff(lie bool) error {
	b.host.change(func() { b.host.lieOff = lie })
	return nil
}

// Stop ends the BMC and frees its port.
func (b *GoBMC) Stop() { b.stop() }

// Faults are what a BMC of either kind can be made to do wrong, beyond BMC.
type Faults interface {
	BMC
	// Hang makes the BMC take no notice of anything, and answer nothing.
	Hang(hang bool) error
	// LateOff makes the host go off only d after the BMC accepted the command,
	// as one does that asks the operating system; 0 ends it.
	LateOff(d time.Duration) error
	// BackOn makes the host come on again by itself d after it went off by a
	// command; 0 ends it.
	BackOn(d time.Duration) error
	// Restart restarts the BMC, not the host: it forgets all sessions.
	Restart() error
}

var _ Faults = (*GoBMC)(nil)

// Hang makes the BMC deaf and mute; it returns nil.
func (b *GoBMC) Hang(hang bool) error {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.conn.hung = hang
	return nil
}

// Slow makes each answer leave d late.
func (b *GoBMC) Slow(d time.Duration) {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.conn.slow = d
}

// LateOff makes the host go off d after the command; it returns nil.
func (b *GoBMC) LateOff(d time.Duration) error {
	b.host.change(func() { b.host.lateOff = d })
	return nil
}

// BackOn makes the host come on again d after it went off; it returns nil.
func (b *GoBMC) BackOn(d time.Duration) error {
	b.host.change(func() { b.host.backOn = d })
	return nil
}

// Restart makes the BMC forget all sessions, and nothing else; it returns nil.
func (b *GoBMC) Restart() error {
	b.conn.mu.Lock()
	ids := b.conn.sessions
	b.conn.sessions = nil
	b.conn.mu.Unlock()
	for _, id := range ids {
		_ = b.state.Sessions.Close(id) // most were closed by their client
	}
	return nil
}

// SetUUID makes the BMC that of another machine, from the next session on.
func (b *GoBMC) SetUUID(uuid string) error {
	_, guid, err := Options{UUID: uuid}.withDefaults()
	if err != nil {
		return err
	}
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.conn.guid = &guid
	return nil
}

// RefuseControl answers each Chassis Control with the completion code, like 0xd5
// (not in the present state), and carries none out; 0 ends it.
func (b *GoBMC) RefuseControl(code byte) {
	if code == 0 {
		b.Intercept(nil)
		return
	}
	const chassis, control = 0x00, 0x02
	b.Intercept(func(c Command) *Reply {
		if c.NetFn == chassis && c.Cmd == control {
			return &Reply{Code: code}
		}
		return nil
	})
}

// Exhaust takes all sessions that are left, as clients do that died without
// closing theirs. Restart frees them, and so does a minute of silence.
func (b *GoBMC) Exhaust() error {
	for {
		s, err := b.state.Sessions.Allocate(1, 0, 0, 0, bmc.PrivilegeLevelUser, 1)
		if err != nil {
			return nil // full: what was wanted
		}
		if err := b.state.Sessions.Activate(s.BMCID); err != nil {
			return fmt.Errorf("take a session: %w", err)
		}
		b.conn.mu.Lock()
		b.conn.sessions = append(b.conn.sessions, s.BMCID)
		b.conn.mu.Unlock()
	}
}

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
