package scene

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
)

// Protocol is the protocol of a worker's BMC.
type Protocol string

// The protocols, and their simulators.
const (
	IPMI    Protocol = "ipmi"     // go-ipmi's BMC server, in this process
	IPMISim Protocol = "ipmi_sim" // Debian's ipmi_sim, as a process
	Redfish Protocol = "redfish"  // over TLS, in this process
)

// The account of every BMC, and the wrong password that a worker may use.
const (
	User          = "fence"
	Password      = "the-right-one"
	WrongPassword = "the-wrong-one"
)

// metal is a worker's BMC and its settings in fenced.
type metal struct {
	BMC ipmisim.BMC // nil for a worker without one
	// Service is the BMC if its protocol is Redfish.
	Service *redfishsim.Server

	relay *ipmisim.Relay
	mains mains
	asked atomic.Int64 // time of a client's first datagram, in Unix nanoseconds
}

// startBMC starts the simulator. uuid and serial are what it reports of the host,
// sessions how many sessions a simulator in this process has, if not 0.
func (m *metal) startBMC(life context.Context, p Protocol, uuid, serial string, sessions int) (err error) {
	o := ipmisim.Options{User: User, Password: Password, UUID: uuid, Sessions: sessions}
	switch p {
	case "":
		return nil
	case Redfish:
		m.Service, err = redfishsim.Start(redfishsim.Options{User: User, Password: Password, Systems: []redfishsim.SystemOptions{{UUID: uuid, Serial: serial}}})
		m.BMC = m.Service
		return err
	case IPMI:
		m.BMC, err = ipmisim.StartGo(life, o)
	case IPMISim:
		m.BMC, err = ipmisim.StartDebian(life, o)
	default:
		err = fmt.Errorf("no BMC speaks %q", p)
	}
	if err != nil {
		return err
	}
	if m.relay, err = ipmisim.StartRelay(m.BMC.Addr()); err != nil {
		return err
	}
	m.Answer()
	return nil
}

func (m *metal) stopBMC() {
	if m.relay != nil {
		m.relay.Stop()
	}
	if m.BMC != nil {
		m.BMC.Stop()
	}
	m.mains.stop()
}

// Address is the address for fenced.
func (m *metal) Address() string {
	if m.Service != nil {
		return m.Service.BMCAddress()
	}
	return "ipmi://" + m.relay.Addr()
}

// silence makes the BMC accept requests without answering, or answer again.
func (m *metal) silence(mute bool) {
	if m.Service != nil {
		m.Service.Faults(func(f *redfishsim.Faults) { f.Hang = mute })
		return
	}
	if f, ok := m.BMC.(ipmisim.Faults); ok {
		_ = f.Hang(mute) // the signal fails only when the process is gone, and silent
	}
}

// Silence makes an IPMI BMC stop answering, as if its network cable were
// disconnected.
func (m *metal) Silence() {
	m.relay.Filter(func(ipmisim.Datagram) []ipmisim.Datagram { return nil })
}

// Answer makes an IPMI BMC answer again after Silence.
func (m *metal) Answer() {
	m.relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if !d.FromBMC {
			m.asked.CompareAndSwap(0, time.Now().UnixNano())
		}
		return []ipmisim.Datagram{d}
	})
}

// FirstAsked is when fenced first sent something to the BMC; zero if never.
func (m *metal) FirstAsked() time.Time {
	if m.Service != nil {
		if r := m.Service.Requests(); len(r) > 0 {
			return r[0].At
		}
		return time.Time{}
	}
	if at := m.asked.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
