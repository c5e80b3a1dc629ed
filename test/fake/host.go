package fake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// Kernel is what runs on a host that is on.
type Kernel string

// What a kernel does.
const (
	Booting Kernel = "booting"
	Runs    Kernel = "runs"
	Hung    Kernel = "hung" // may come back
	Dead    Kernel = "dead"
)

// Host is one machine, its kubelet and its BMC.
type Host struct {
	s            *State
	Name         string // the Node's too
	UUID         string
	NodeUUID     string // the UUID that its Node tells; empty: its own
	Zone         string
	ControlPlane bool // with a member of etcd
	MemberSick   bool // although its Node is Ready
	MemberUnseen bool // past the cache
	Owned        Owned

	On       bool
	OnSince  time.Time // or off
	OffBy    string    // who switched it off last
	Kernel   Kernel
	Boots    int
	UpAt     time.Time // when what boots is up
	Comeback time.Time // when a hung kernel goes on; zero = never
	Cut      time.Time // the kubelet does not reach the API server until then
	Gone     bool      // reprovisioned: the Machine was deleted
	// LeaseMoves is a Lease that is renewed whatever the host does, by a clock that
	// stands in the past.
	LeaseMoves bool
	// LeaseFor is for how long the kubelet takes its Lease; 40 s if zero.
	LeaseFor time.Duration
	// StartsWithMains is a host that boots when its outlets feed it again.
	StartsWithMains bool
	// How long these take; nil: bootTime for a boot, lateBy for what is late, and nothing
	// for a boot of the BMC.
	BootTime, BMCBootTime, LateBy func() time.Duration

	joined             bool // the kubelet has registered since the boot
	renewedAt, readyAt time.Time
	later              *bool // a switch that the BMC has taken and not done yet
	laterAt            time.Time
	Isolated           int // how often its Node was deleted by us

	BMC     BMC
	Outlets []*Outlet
}

// Owned is what the owner of a Node gave it: no kubelet brings that back.
type Owned struct {
	Labels   map[string]string
	Taints   []string
	Cordoned bool
}

// AddHost makes a host with its Node, On and Ready, and its Machine where that has an
// API. What the caller gives is completed.
func (s *State) AddHost(given Host, m policy.Machine) *Host {
	h, now := &given, time.Now()
	h.s, h.On, h.Kernel, h.Boots, h.joined = s, true, Runs, 1, true
	h.OnSince, h.renewedAt, h.readyAt = now.Add(-time.Hour), now, now
	h.BMC = BMC{h: h, Boot: 1}
	if h.NodeUUID == "" {
		h.NodeUUID = h.UUID
	}
	s.Hosts = append(s.Hosts, h)
	s.join(h)
	s.ChangeNode(h.Name, func(n *Node) {
		maps.Copy(n.Labels, h.Owned.Labels)
		n.Taints, n.Cordoned, n.Ready = slices.Clone(h.Owned.Taints), h.Owned.Cordoned, "True"
	})
	s.renew(h.Name, now)
	if m.APIVersion != "" {
		m.NodeName, m.ControlPlane = h.Name, h.ControlPlane
		s.PutMachine(m)
	}
	return h
}

// BootID is that of the boot that runs.
func (h *Host) BootID() string { return fmt.Sprintf("%s-boot-%d", h.Name, h.Boots) }

// Supplied says whether any outlet feeds the host.
func (h *Host) Supplied() bool {
	return len(h.Outlets) == 0 || slices.ContainsFunc(h.Outlets, func(o *Outlet) bool { return o.On || o.FeedsAnother })
}

// Power switches the host for real.
func (h *Host) Power(on bool, why string) {
	if on && !h.Supplied() || on == h.On {
		return
	}
	h.On, h.OnSince, h.later = on, time.Now(), nil
	h.s.Note(h.Name, "power %t (%s)", on, why)
	if on {
		h.Boot()
		return
	}
	h.Kernel, h.joined, h.OffBy = Dead, false, why
	h.s.countOff()
}

// bootTime is that of a host that has none of its own: its kubelet registers in the
// twentieth second.
const bootTime = 19 * time.Second

// Boot starts the kernel from scratch.
func (h *Host) Boot() {
	h.Boots++
	h.Kernel, h.joined, h.Cut, h.Comeback = Booting, false, time.Time{}, time.Time{}
	h.UpAt = time.Now().Add(chosen(h.BootTime, bootTime))
}

// Hang stops the kernel, for good unless it comes back.
func (h *Host) Hang(comeback time.Time) { h.Kernel, h.Comeback = Hung, comeback }

// chosen is a duration that a test chooses anew for each use, or the default.
func chosen(choose func() time.Duration, byDefault time.Duration) time.Duration {
	if choose == nil {
		return byDefault
	}
	return choose()
}

// tick is one second of the host's life.
func (h *Host) tick(now time.Time) {
	if !h.BMC.well(now) {
		h.BMC.IllAt = now
	}
	if h.LeaseMoves {
		h.s.renew(h.Name, h.s.Leases[h.Name].Renewed)
	}
	if h.later != nil && !now.Before(h.laterAt) {
		h.Power(*h.later, "late")
		h.later = nil
	}
	if !h.On {
		return
	}
	switch {
	case h.Kernel == Booting && !now.Before(h.UpAt):
		h.Kernel = Runs
	case h.Kernel == Hung && !h.Comeback.IsZero() && now.After(h.Comeback):
		h.Kernel = Runs
		h.s.Note(h.Name, "the hung kernel goes on")
	}
	if h.Kernel == Runs && !now.Before(h.Cut) && !h.Gone {
		h.kubelet(now)
	}
}

// leaseFor is the duration of the kubelet's Lease, which it renews at a quarter of that.
func (h *Host) leaseFor() time.Duration { return cmp.Or(h.LeaseFor, 40*time.Second) }

// kubelet registers once for each boot, renews its Lease, and says that it is
// Ready. A Node that was deleted under it is not made again: the Lease moves on.
func (h *Host) kubelet(now time.Time) {
	if !h.joined {
		h.joined, h.readyAt = true, now.Add(h.s.ReadyAfter)
		h.s.join(h)
	}
	if now.Sub(h.renewedAt) >= h.leaseFor()/4 {
		h.renewedAt = now
		h.s.renew(h.Name, now)
	}
	if n := h.s.Nodes[h.Name]; n != nil && n.Ready != "True" && !now.Before(h.readyAt) && n.BootID == h.BootID() {
		h.s.SetReady(h.Name, "True")
	}
}

// countOff remembers how many hosts were off at once.
func (s *State) countOff() {
	now := map[string]int{}
	for _, h := range s.Hosts {
		if !h.On {
			now[h.Zone]++
			now["all"]++
		}
	}
	for zone, n := range now {
		s.mostOff[zone] = max(s.mostOff[zone], n)
	}
}
