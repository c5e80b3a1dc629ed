package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/fake"
)

// host is one machine of the model with its story. Guarded by the world's mutex.
type host struct {
	*fake.Host
	w         *World
	protected bool
	own       bool      // fenced-0 knows it as its own host
	listed    bool      // it has an entry in hosts.d, otherwise only a BareMetalHost
	pinned    bool      // its devices are enrolled
	leads     way       // the machines that the entry leads to
	metal     *host     // the machine that its BareMetalHost leads to
	acts      time.Time // next reconciliation of the owner of the power
	absurd    bool      // the transition time of its Node is absurd
	until     time.Time // end of its BMC's fault
	outlets   []*outlet
	rng       *rand.Rand

	broken bool // it does not boot until it is repaired
	// unknown: people look after it, for its Machine was made anew, or its run was of a copy of the
	// cluster and was closed.
	unknown bool
	spelt   int // the boot for which the writing of its UUID was chosen
	spare   spare
	// life is since when something other than the boot that was switched off may renew its Lease.
	life time.Time
}

// addHost adds one host with its Machine and Node, On and Ready.
func (w *World) addHost(i int) {
	h := &host{w: w, rng: rand.New(rand.NewPCG(w.plan.Seed, 100+uint64(i)))}
	takes := func(least, most time.Duration) func() time.Duration {
		return func() time.Duration { return between(h.rng, least, most) }
	}
	name := fmt.Sprintf("n-%d", i)
	given := fake.Host{
		Name: name, UUID: fmt.Sprintf("4c4c4544-0042-3510-8054-b4c04f4d31%02x", i), ControlPlane: i < w.plan.ControlPlanes,
		Owned:    fake.Owned{Labels: map[string]string{"team": "storage", "rack": "r-" + name}, Taints: []string{"gpu"}, Cordoned: h.rng.IntN(4) == 0},
		BootTime: h.boots, BMCBootTime: takes(5*time.Second, 40*time.Second), LateBy: takes(2*time.Second, 12*time.Second),
	}
	if w.plan.LongLeases {
		given.LeaseFor = 2 * time.Minute
	}
	if w.plan.Zones > 0 {
		given.Zone = fmt.Sprintf("z-%d", i%w.plan.Zones)
	}
	m := policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: fake.Namespace, Name: "m-" + name, UID: "m-" + name, Phase: "Running",
		ControllerOwner: policy.Owner{Kind: "MachineSet", Name: "set", UID: "set"}}
	if w.plan.Metal {
		m.Annotations = map[string]string{"metal3.io/BareMetalHost": fake.Namespace + "/" + name}
	}
	h.Host = w.api.AddHost(given, m)
	w.chassis[name] = h.Host
	last := w.plan.ControlPlanes + w.plan.Workers - 1
	h.protected, h.own = i == last && w.plan.Seed%3 == 0, i == last-1 && w.plan.Seed%3 == 0
	h.leads, h.listed = way{h, h}, !w.plan.Metal || h.protected || i%3 == 0
	for range 2 {
		if w.plan.Outlets {
			h.outlets = append(h.outlets, &outlet{Outlet: h.AddOutlet(), h: h})
		}
	}
	w.hosts = append(w.hosts, h)
	if w.plan.Metal {
		w.point(h, h)
	}
}

// tickGit creates deleted Nodes again, after a time of their own.
func (w *World) tickGit() {
	if !w.plan.Git {
		return
	}
	for _, h := range w.hosts {
		if w.api.Nodes[h.Name] == nil && !h.Gone && h.rng.IntN(20) == 0 {
			w.api.PutFromGit(h.Name)
			w.fault("node-from-git", h.Name, "")
		}
	}
}

// trouble breaks something on the host, at random.
func (h *host) trouble(now time.Time) {
	w := h.w
	if !w.chance(w.plan.Hosts) || h.Gone {
		return
	}
	what := w.rng.IntN(10)
	if w.plan.OnlyCuts {
		what = 9
	}
	switch {
	case !h.On:
		h.Power(true, "foreign hand")
		w.fault("foreign-on", h.Name, "")
	case what < 4:
		h.Hang(time.Time{})
		if w.rng.IntN(3) == 0 {
			h.Comeback = now.Add(between(w.rng, time.Minute, 6*time.Minute))
		}
		w.fault("kernel-hang", h.Name, "comes back: %t", !h.Comeback.IsZero())
	case what < 6:
		h.Kernel = fake.Dead
		w.fault("kernel-panic", h.Name, "it is dead")
	case what < 7:
		h.Boot()
		w.fault("reboot", h.Name, "boots by itself")
	case what < 8:
		h.Power(false, "foreign hand")
		w.fault("foreign-off", h.Name, "")
	default:
		h.Cut = now.Add(between(w.rng, 30*time.Second, 8*time.Minute))
		w.fault("kubelet-cut", h.Name, "until %s", h.Cut.Sub(w.began))
	}
}

// mend repairs the hardware.
func (h *host) mend() {
	h.Cut, h.BMC.Fault = time.Time{}, fake.NoFault
	if h.broken && h.Kernel == fake.Booting {
		h.UpAt = time.Now().Add(between(h.rng, 25*time.Second, 75*time.Second))
	}
	h.broken = false
	for _, o := range h.outlets {
		o.Fault = fake.NoFault
	}
}
