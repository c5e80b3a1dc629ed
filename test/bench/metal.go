package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenced/fenced/test/ipmisim"
)

// target is a host behind a BMC that notes when it is first asked something.
type target struct {
	uuid  string
	bmc   *ipmisim.GoBMC
	relay *ipmisim.Relay
	once  sync.Once
	asked chan time.Time // the arrival of the first datagram
}

// metal is every BMC: those of the targets, and one address each for all other
// hosts, behind which a decoy counts what should never come.
type metal struct {
	targets []*target
	decoy   *decoy
}

func startMetal(ctx context.Context, targets int) (_ *metal, err error) {
	m := &metal{}
	if m.decoy, err = startDecoy(ctx); err != nil {
		return nil, err
	}
	for range targets {
		t := &target{uuid: newUUID(), asked: make(chan time.Time, 1)}
		if err := t.start(ctx); err != nil {
			m.stop()
			return nil, err
		}
		m.targets = append(m.targets, t)
	}
	return m, nil
}

func (m *metal) stop() {
	m.decoy.stop()
	for _, t := range m.targets {
		t.relay.Stop()
		t.bmc.Stop()
	}
}

func (t *target) start(ctx context.Context) (err error) {
	if t.bmc, err = ipmisim.StartGo(ctx, ipmisim.Options{User: user, Password: password, UUID: t.uuid}); err != nil {
		return err
	}
	if t.relay, err = ipmisim.StartRelay(t.bmc.Addr()); err != nil {
		t.bmc.Stop()
		return err
	}
	t.relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if !d.FromBMC {
			t.once.Do(func() { t.asked <- time.Now() })
		}
		return []ipmisim.Datagram{d}
	})
	return nil
}

// decoy listens on every loopback address, 127.0.0.0/8, at one port.
type decoy struct {
	conn  net.PacketConn
	port  int
	asked atomic.Int64
	done  chan struct{}
}

func startDecoy(ctx context.Context) (*decoy, error) {
	// All addresses, but only of the loopback device: nobody outside can reach it.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), "lo") })
		if err != nil {
			return err
		}
		return bound
	}}
	conn, err := lc.ListenPacket(ctx, "udp4", "0.0.0.0:0")
	if err != nil {
		return nil, fmt.Errorf("listen for whoever asks a healthy host: %w", err)
	}
	d := &decoy{conn: conn, port: conn.LocalAddr().(*net.UDPAddr).Port, done: make(chan struct{})}
	go d.count()
	return d, nil
}

func (d *decoy) count() {
	defer close(d.done)
	var buf [2048]byte
	for {
		if _, _, err := d.conn.ReadFrom(buf[:]); err != nil {
			return // closed
		}
		d.asked.Add(1)
	}
}

// address is that of one host; every number has its own.
func (d *decoy) address(number int) string {
	return fmt.Sprintf("ipmi://127.%d.%d.%d:%d", 1+number>>16&0x7f, number>>8&0xff, number&0xff, d.port)
}

func (d *decoy) stop() {
	_ = d.conn.Close() // nothing is lost with it
	<-d.done
}
