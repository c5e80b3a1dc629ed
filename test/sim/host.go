package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// kernel is what runs on a host that is on.
type kernel string

const (
	kernelBooting kernel = "booting"
	kernelRuns    kernel = "runs"
	kernelHung    kernel = "hung" // may come back
	kernelDead    kernel = "dead"
)

// host is one machine, its kubelet and its BMC. Guarded by the world's mutex.
type host struct {
	w            *World
	name         string // the Node's too
	uuid         string
	zone         string
	controlPlane bool
	protected    bool
	own          bool   // what fenced-0 knows as its own host
	listed       bool   // it has an entry in hosts.d; else only a BareMetalHost knows the way
	pinned       bool   // a person has enrolled its devices
	leads        way    // where that entry leads
	tells        string // the UUID that its Node tells
	absurd       bool   // since when its Node is Unknown
	rng          *rand.Rand

	on       bool
	onSince  time.Time // or off
	offBy    string    // who switched it off last
	cordoned bool      // by its owner
	kernel   kernel
	boots    int
	upAt     time.Time // when what boots is up
	comeback time.Time // when a hung kernel goes on; zero = never
	// later is a switch that the BMC has taken and not done yet.
	later   bool
	laterTo bool
	laterAt time.Time
	// cut: the kubelet does not reach the API server.
	cut       time.Time
	joined    bool // the kubelet has registered since the boot
	renewedAt time.Time
	readyAt   time.Time
	gone      bool // reprovisioned: the Machine was deleted

	bmc     bmcState
	outlets []*outlet
}

// addHost makes one host with its Machine and Node, On and Ready.
func (w *World) addHost(i int) {
	h := &host{
		w: w, name: fmt.Sprintf("n-%d", i), uuid: fmt.Sprintf("4c4c4544-0042-3510-8054-b4c04f4d31%02x", i), controlPlane: i < w.plan.ControlPlanes,
		rng: rand.New(rand.NewPCG(w.plan.Seed, 100+uint64(i))), on: true, kernel: kernelRuns, boots: 1, joined: true,
		onSince: w.began.Add(-time.Hour), renewedAt: w.began, readyAt: w.began,
	}
	if w.plan.Zones > 0 {
		h.zone = fmt.Sprintf("z-%d", i%w.plan.Zones)
	}
	last := w.plan.ControlPlanes + w.plan.Workers - 1
	h.protected, h.own = i == last && w.plan.Seed%3 == 0, i == last-1 && w.plan.Seed%3 == 0
	h.bmc = bmcState{h: h, boot: 1}
	h.tells, h.leads, h.listed = h.uuid, way{h, h}, !w.plan.Metal || h.protected || i%3 == 0
	if w.plan.Outlets {
		h.outlets = []*outlet{{h: h, on: true}, {h: h, on: true}}
	}
	w.hosts = append(w.hosts, h)
	w.api.join(h)
	w.api.addMachine(h)
}

func (h *host) bootID() string { return fmt.Sprintf("%s-boot-%d", h.name, h.boots) }

// supplied says whether any outlet feeds the host.
func (h *host) supplied() bool {
	if len(h.outlets) == 0 {
		return true
	}
	for _, o := range h.outlets {
		if o.on {
			return true
		}
	}
	return false
}

// power switches the host for real.
func (h *host) power(on bool, why string) {
	if on && !h.supplied() || on == h.on {
		return
	}
	h.on, h.onSince, h.later = on, time.Now(), false
	h.w.note(h.name, "power %t (%s)", on, why)
	if on {
		h.boot()
	} else {
		h.kernel, h.joined, h.offBy = kernelDead, false, why
	}
}

// boot starts the kernel from scratch.
func (h *host) boot() {
	h.boots++
	h.kernel, h.joined, h.cut, h.comeback = kernelBooting, false, time.Time{}, time.Time{}
	h.upAt = time.Now().Add(between(h.rng, 25*time.Second, 75*time.Second))
}

// tick is one second of the host's life.
func (h *host) tick(now time.Time) {
	if h.bmc.mood != wellBehaved || now.Before(h.bmc.upAt) || !h.supplied() {
		h.bmc.illAt = now
	}
	if h.later && !now.Before(h.laterAt) {
		h.later = false
		h.power(h.laterTo, "late")
	}
	if !h.on {
		return
	}
	switch {
	case h.kernel == kernelBooting && !now.Before(h.upAt):
		h.kernel = kernelRuns
	case h.kernel == kernelHung && !h.comeback.IsZero() && now.After(h.comeback):
		h.kernel = kernelRuns
		h.w.note(h.name, "the hung kernel goes on")
	}
	if h.kernel != kernelRuns || now.Before(h.cut) || h.gone {
		return
	}
	h.kubelet(now)
}

const renewEvery = 10 * time.Second

// kubelet registers once for each boot, renews its Lease, and says that it is
// Ready. A Node that was deleted under it is not made again: the Lease moves on.
func (h *host) kubelet(now time.Time) {
	if !h.joined {
		h.joined, h.readyAt = true, now.Add(5*time.Second)
		h.w.api.join(h)
	}
	if now.Sub(h.renewedAt) >= renewEvery {
		h.renewedAt = now
		h.w.api.renew(h)
	}
	if n := h.w.api.nodes[h.name]; n != nil && n.Ready != "True" && !now.Before(h.readyAt) && n.BootID == h.bootID() {
		h.w.api.setReady(h.name, "True")
	}
}

// break breaks something of the host, by its dice.
func (h *host) trouble(now time.Time) {
	w := h.w
	if !w.chance(w.plan.Hosts) || h.gone {
		return
	}
	what := w.rng.IntN(10)
	if w.plan.OnlyCuts {
		what = 9
	}
	switch {
	case !h.on:
		h.power(true, "foreign hand")
		w.fault("foreign-on", h.name, "")
	case what < 4:
		h.kernel, h.comeback = kernelHung, time.Time{}
		if w.rng.IntN(3) == 0 {
			h.comeback = now.Add(between(w.rng, time.Minute, 6*time.Minute))
		}
		w.fault("kernel-hang", h.name, "comes back: %t", !h.comeback.IsZero())
	case what < 6:
		h.kernel = kernelDead
		w.fault("kernel-panic", h.name, "it is dead")
	case what < 7:
		h.boot()
		w.fault("reboot", h.name, "boots by itself")
	case what < 8:
		h.power(false, "foreign hand")
		w.fault("foreign-off", h.name, "")
	default:
		h.cut = now.Add(between(w.rng, 30*time.Second, 8*time.Minute))
		w.fault("kubelet-cut", h.name, "until %s", h.cut.Sub(w.began))
	}
}

// mend makes the hardware well again.
func (h *host) mend() {
	h.cut = time.Time{}
	h.bmc.heal()
	for _, o := range h.outlets {
		o.heal()
	}
}
