package scene

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/redfishsim"
	"github.com/fenced/fenced/test/rig"
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

// Outlet is one outlet of a power distribution unit: an ipmi_sim whose chassis is
// the connected load.
type Outlet struct {
	// Driver is the driver with which fenced uses it; it must be one that needs
	// enrolment.
	Driver Driver
	// FeedsAnother: the outlet feeds something else than its entry says.
	FeedsAnother bool
}

const (
	mainsPoll = 20 * time.Millisecond
	// bmcBoot is how long a BMC takes to answer after its mains returned.
	bmcBoot = 2 * time.Second
)

// mains is what feeds a worker: its outlets, or without outlets a supply that
// never fails.
type mains struct {
	outlets, feeding []*ipmisim.DebianBMC
	follow           sync.WaitGroup

	mu        sync.Mutex
	cut, dead bool // the mains, and the BMC whatever its mains
}

// wire connects a worker to its outlets.
func (s *Scene) wire(life context.Context, w *Worker) error {
	for i, o := range w.Outlets {
		b, err := ipmisim.StartDebian(life, ipmisim.Options{User: User, Password: Password})
		if err != nil {
			return fmt.Errorf("start outlet %d of %s: %w", i+1, w.Name, err)
		}
		w.mains.outlets = append(w.mains.outlets, b)
		if !o.FeedsAnother {
			w.mains.feeding = append(w.mains.feeding, b)
		}
	}
	if len(w.mains.feeding) > 0 {
		w.mains.follow.Go(func() { w.followMains(life) })
	}
	return nil
}

func (m *mains) stop() {
	m.follow.Wait()
	for _, b := range m.outlets {
		b.Stop()
	}
}

// fed reports whether an outlet has power: one is enough for the whole host.
func (m *mains) fed() bool {
	return len(m.feeding) == 0 || slices.ContainsFunc(m.feeding, (*ipmisim.DebianBMC).Power)
}

// followMains switches host and BMC when the mains fail and return, until life
// ends.
func (w *Worker) followMains(life context.Context) {
	for fed := true; rig.Sleep(life, mainsPoll); {
		if w.mains.fed() == fed {
			continue
		}
		if fed = !fed; !fed {
			w.mute(func(m *mains) { m.cut = true })
			_ = w.BMC.SetPower(false) // fails only for a host that then reads On, which the play sees
			continue
		}
		if !rig.Sleep(life, bmcBoot) {
			return
		}
		_ = w.BMC.SetPower(w.AlwaysOn)
		w.mute(func(m *mains) { m.cut = false })
	}
}

// KillBMC makes the BMC stop answering, whatever happens to its mains. The host
// continues to run.
func (w *Worker) KillBMC() { w.mute(func(m *mains) { m.dead = true }) }

// ReviveBMC ends KillBMC.
func (w *Worker) ReviveBMC() { w.mute(func(m *mains) { m.dead = false }) }

// LoseMains takes the power from host and BMC together, as when a rack loses it.
func (w *Worker) LoseMains() error {
	w.mute(func(m *mains) { m.cut = true })
	return w.BMC.SetPower(false)
}

// RestoreMains ends LoseMains. The host is on then, or stays off.
func (w *Worker) RestoreMains(on bool) error {
	if err := w.BMC.SetPower(on); err != nil {
		return err
	}
	w.mute(func(m *mains) { m.cut = false })
	return nil
}

// mute changes the state of a BMC's mains, and silences the BMC accordingly.
func (w *Worker) mute(change func(*mains)) {
	w.mains.mu.Lock()
	defer w.mains.mu.Unlock()
	change(&w.mains)
	w.silence(w.mains.cut || w.mains.dead)
}

// Outlet returns the outlet with this number, from 0.
func (w *Worker) Outlet(i int) *ipmisim.DebianBMC { return w.mains.outlets[i] }

// On reports whether the host runs: it is switched on and has mains power.
func (w *Worker) On() bool { return w.BMC.Power() && w.mains.fed() }

// power is On in the form that a simulated kubelet needs.
func (w *Worker) power(ctx context.Context) (bool, error) {
	on, err := w.BMC.Source(ctx)
	return on && w.mains.fed(), err
}
