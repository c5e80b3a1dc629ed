package fake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// Kernel is the state of the kernel on a host that is on.
type Kernel string

// The states of a kernel.
const (
	Booting Kernel = "booting"
	Runs    Kernel = "runs"
	Hung    Kernel = "hung" // may come back
	Dead    Kernel = "dead"
)

// Host is one machine, its kubelet and its BMC.
type Host struct {
	s            *State
	Name         string // also the name of the Node
	Chassis      string // names its boots; empty: its name does
	UUID         string
	NodeUUID     string // the UUID in its Node; empty: its own
	Zone         string
	ControlPlane bool // with a member of etcd
	MemberSick   bool // the etcd member is unhealthy although the Node is Ready
	MemberUnseen bool // in uncached reads
	Owned        Owned

	On       bool
	OnSince  time.Time // since when it is on, or off
	OffBy    string    // who last switched it off
	Kernel   Kernel
	Boots    int
	UpAt     time.Time // end of the boot
	Comeback time.Time // when a hung kernel continues; zero = never
	Cut      time.Time // the kubelet does not reach the API server until then
	Gone     bool      // reprovisioned: the Machine was deleted
	// Retired: another machine has its name, so its kubelet is no part of the cluster.
	Retired bool
	// LeaseMoves makes the Lease be renewed whatever the host does, with a clock in
	// the past.
	LeaseMoves bool
	// LeaseFor is the duration of the kubelet's Lease; 40 s if zero.
	LeaseFor time.Duration
	// StartsWithMains makes the host boot when its outlets feed it again.
	StartsWithMains bool
	// Durations; nil means bootTime for a boot, lateBy for a late command, and no
	// time for a boot of the BMC.
	BootTime, BMCBootTime, LateBy func() time.Duration

	joined             bool // the kubelet has registered since the boot
	renewedAt, readyAt time.Time
	later              *bool // a command that the BMC accepted and has not carried out yet
	laterAt            time.Time
	Isolated           int // how often fenced deleted its Node

	BMC     BMC
	Outlets []*Outlet
}

// Owned is what the owner of a Node gave it. No kubelet restores it.
type Owned struct {
	Labels   map[string]string
	Taints   []string
	Cordoned bool
}

// AddHost adds a host with its Node, On and Ready, and with its Machine if m has
// an API version. It completes the given values.
func (s *State) AddHost(given Host, m policy.Machine) *Host {
	h, now := &given, time.Now()
	h.s, h.On, h.Kernel, h.Boots, h.joined = s, true, Runs, 1, true
	h.OnSince, h.renewedAt, h.readyAt = now.Add(-time.Hour), now, now
	h.BMC = BMC{h: h, Boot: 1}
	h.NodeUUID = cmp.Or(h.NodeUUID, h.UUID)
	s.Hosts = append(s.Hosts, h)
	s.join(h)
	s.ChangeNode(h.Name, func(n *Node) {
		maps.Copy(n.Labels, h.Owned.Labels)
		n.Taints, n.Cordoned, n.Ready = slices.Clone(h.Owned.Taints), h.Owned.Cordoned, "True"
	})
	s.renew(h.Name, now)
	if m.APIVersion != "" {
		m.NodeName, m.ControlPlane = h.Name, h.ControlPlane
		m.NodeUID = s.Nodes[h.Name].UID // and stays so when the Node registers anew, as in the Cluster API's v1beta1
		s.PutMachine(m)
	}
	return h
}

// DropHost takes a machine out of the world.
func (s *State) DropHost(h *Host) {
	h.Power(false, "taken away")
	s.Hosts = slices.DeleteFunc(s.Hosts, func(o *Host) bool { return o == h })
}

func (h *Host) BootID() string { return fmt.Sprintf("%s-boot-%d", cmp.Or(h.Chassis, h.Name), h.Boots) }

// Supplied reports whether any outlet feeds the host.
func (h *Host) Supplied() bool {
	return len(h.Outlets) == 0 || slices.ContainsFunc(h.Outlets, func(o *Outlet) bool { return o.On || o.FeedsAnother })
}

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

// bootTime is the default duration of a boot. The kubelet registers in the
// twentieth second.
const bootTime = 19 * time.Second

// Boot starts the kernel.
func (h *Host) Boot() {
	h.Boots++
	h.Kernel, h.joined, h.Cut, h.Comeback = Booting, false, time.Time{}, time.Time{}
	h.UpAt = time.Now().Add(chosen(h.BootTime, bootTime))
}

// Hang stops the kernel, for good unless comeback is set.
func (h *Host) Hang(comeback time.Time) { h.Kernel, h.Comeback = Hung, comeback }

// chosen is a duration that a test chooses for each use, or the default.
func chosen(choose func() time.Duration, byDefault time.Duration) time.Duration {
	if choose == nil {
		return byDefault
	}
	return choose()
}

// tick simulates one second of the host.
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
	if h.Kernel == Runs && !now.Before(h.Cut) && !h.Gone && !h.Retired {
		h.kubelet(now)
	}
}

// leaseFor is the duration of the kubelet's Lease, which it renews at a quarter
// of that.
func (h *Host) leaseFor() time.Duration { return cmp.Or(h.LeaseFor, 40*time.Second) }

// kubelet registers once for each boot, renews its Lease, and reports Ready. If
// its Node is deleted while it runs, it does not create another one; it continues
// to renew the Lease.
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

// countOff records how many hosts were off at the same time.
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
