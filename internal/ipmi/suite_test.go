package ipmi

import (
	"testing"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// otherGUID is that of another machine.
const otherGUID = "4c4c4544-0011-0000-8000-00000000beef"

var (
	forgets        = "a BMC forgets a handshake that was cut off by itself, or for the next one"
	oneBit         = "chassis status has one bit for power"
	noConnections  = "UDP has no connections; see the hang"
	datagrams      = "a datagram is whole"
	asksNobody     = "this BMC does not tell its sessions"
	onlyFromConfig = "this BMC takes its GUID when it starts"
	obeys          = "this BMC carries out whatever it is told"
)

func TestSuiteOverGoIPMI(t *testing.T) {
	t.Parallel()
	for _, p := range peers[:2] {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			bmctest.Run(t, bmctest.Driver{
				New:    func(t *testing.T) *bmctest.World { return goWorld(t, p) },
				Cannot: map[string]string{"Transitional": oneBit, "HalfOpen": noConnections, "CloseSilently": noConnections, "CutBodies": datagrams, "CutLogins": forgets},
			})
		})
	}
}

func TestSuiteOverDebian(t *testing.T) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			w, _ := worldOf(t, startDebian(t, ipmisim.Options{}))
			return w
		},
		Cannot: map[string]string{
			"Transitional": oneBit, "HalfOpen": noConnections, "CloseSilently": noConnections, "CutBodies": datagrams, "Sessions": asksNobody, "CutLogins": asksNobody,
			"ChangeIdentity": onlyFromConfig, "RefuseSame": obeys,
		},
	})
}

func TestSuiteOverPyghmi(t *testing.T) {
	t.Parallel()
	bmctest.Run(t, bmctest.Driver{
		New: func(t *testing.T) *bmctest.World {
			w, _ := worldOf(t, startPyghmi(t, ipmisim.Options{}))
			return w
		},
		Cannot: map[string]string{
			"Transitional": oneBit, "HalfOpen": noConnections, "CloseSilently": noConnections, "CutBodies": datagrams, "Sessions": asksNobody, "CutLogins": asksNobody,
			"ChangeIdentity": onlyFromConfig, "RefuseSame": obeys,
		},
	})
}

func goWorld(t *testing.T, p peer) *bmctest.World {
	b := p.start(t, ipmisim.Options{}).(*ipmisim.GoBMC)
	w, _ := worldOf(t, b)
	w.Sessions = b.Sessions
	w.RefuseSame = func(refuse bool) error {
		b.RefuseControl(map[bool]byte{true: codePresentState}[refuse])
		return nil
	}
	w.ChangeIdentity = func() error {
		if err := b.SetUUID(otherGUID); err != nil {
			return err
		}
		return b.Restart()
	}
	return w
}

// worldOf is the world of a BMC behind a relay.
func worldOf(t *testing.T, b ipmisim.Faults) (*bmctest.World, *ipmisim.Relay) {
	relay := relayTo(t, b)
	return &bmctest.World{
		Open:   func(d bmc.Device) (bmc.Power, error) { return New(d, timing), nil },
		Device: hostAt(t, relay.Addr()),
		UUID:   guid,
		On:     b.Power, SetPower: b.SetPower,
		IgnoreOff: b.IgnoreOff, LateOff: b.LateOff, BackOn: b.BackOn, Hang: b.Hang, Restart: b.Restart,
		Bad: func(bad bool) error {
			n := ipmisim.Network{Seed: 7}
			if bad {
				n.Loss, n.Double, n.Reorder = 0.1, 0.1, 0.1
			}
			relay.Network(withoutDoubles(b, n))
			return nil
		},
		LoseAnswer: func(lose bool) error { loseAnswers(b, relay, lose); return nil },
		Logins: func() int {
			// Each login of the suite's case ends in a RAKP 3, which may still be on its way.
			for end := time.Now().Add(pace.Hang); failedLogins(relay.Seen()) == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			return failedLogins(relay.Seen())
		},
	}, relay
}

// failedLogins is how many failed logins a BMC can count whose password is another one:
// a RAKP 3 with a proof of our password, or one that says that the proof in RAKP 2 is wrong.
func failedLogins(seen []ipmisim.Datagram) (n int) {
	for _, d := range seen {
		if d.Payload() == ipmisim.PayloadRAKP3 && (len(d.Data) > headerLen+8 || d.Data[headerLen+1] == statusWrongCode) {
			n++
		}
	}
	return n
}

// loseAnswers loses what the BMC says from when the host is off: the answer to the command,
// however often a slow BMC was asked for what comes before it.
func loseAnswers(b ipmisim.BMC, relay *ipmisim.Relay, lose bool) {
	if !lose {
		relay.Filter(nil)
		return
	}
	relay.Filter(losing(func(d ipmisim.Datagram) bool { return d.FromBMC && !b.Power() }))
}
