package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
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

// spare is another machine that has the name of a host's Node: a person has moved the disks into
// another chassis, or set up another machine. fenced has no BMC for it. The zero value: the host has
// its name.
type spare struct {
	*fake.Host
	taken  time.Time
	fails  time.Time // when its kernel hangs
	leaves time.Time // when the host gets its name back
	// refuted is when a health check of this host's BMC found the Node on another machine, and
	// could store that.
	refuted time.Time
}

// tell changes the UUID in the Node of a host, unless another machine's kubelet has registered it.
func (h *host) tell(uuid string) {
	h.NodeUUID = uuid
	n := h.w.api.Nodes[h.Name]
	if n == nil || h.Retired {
		return
	}
	if m := h.w.machineOf(n); m == nil || m == h.Host {
		h.w.api.ShowUUID(h.Host)
	}
}

// mayTakeName lets another machine take the name of a Node, at random, mostly of a host with a run.
// w.mu is held.
func (w *World) mayTakeName(now time.Time) {
	often := w.plan.Names / 3600
	if w.busy() {
		often *= 4
	}
	if w.plan.Names == 0 || w.luck.Float64() >= often {
		return
	}
	h := w.hosts[w.luck.IntN(len(w.hosts))]
	for range 6 {
		if _, open := w.open(h.Name); open {
			break
		}
		h = w.hosts[w.luck.IntN(len(w.hosts))]
	}
	switch {
	case h.Gone:
	case w.luck.IntN(4) == 0:
		w.makeAnew(h)
	case !h.ControlPlane && !h.Retired: // an etcd member is more than its disks
		h.loseName(now)
	}
}

// makeAnew lets a person delete the Machine of a host, or its BareMetalHost, and make it again under
// the same name, as from a backup of the cluster. w.mu is held.
func (w *World) makeAnew(h *host) {
	m, b := w.api.Machines[h.Name], w.api.Metal[h.Name]
	if b != nil && w.luck.IntN(2) == 0 {
		w.fault("metal-made-anew", h.Name, "%s", b.UID)
		w.api.ChangeMetal(h.Name, func(b *policy.Host) { b.UID, b.Annotations = b.UID+"-again", nil })
		return
	}
	if m == nil {
		return
	}
	w.fault("machine-made-anew", h.Name, "%s", m.UID)
	w.api.ChangeMachine(h.Name, func(m *policy.Machine) { m.UID += "-again" })
	h.unknown, h.Owned = true, fake.Owned{} // a run for the Machine that is gone owes it nothing
	if q := w.api.Asked[m.Name]; q != nil { // its garbage is collected
		w.withdraw(h, q, 0)
	}
}

// loseName lets another machine take the name. The Node stays, as where the disks were moved, or is
// made anew. The host stays as it is, or a person switches it off. w.mu is held.
func (h *host) loseName(now time.Time) {
	w := h.w
	h.Retired = true
	if w.luck.IntN(2) == 0 && w.api.Nodes[h.Name] != nil {
		w.api.RemoveNode(h.Name)
	}
	if w.luck.IntN(2) == 0 {
		h.Power(false, "foreign hand")
	}
	n := len(w.chassis)
	given := fake.Host{Name: h.Name, Chassis: fmt.Sprintf("spare-%d", n), UUID: fmt.Sprintf("4c4c4544-0042-3510-8054-b4c04f4d77%02x", n),
		Owned: h.Owned, Zone: h.Zone, LeaseFor: h.LeaseFor}
	h.spare = spare{Host: w.api.AddHost(given, policy.Machine{}), taken: now, leaves: now.Add(between(w.luck, 5*time.Minute, 25*time.Minute))}
	if w.luck.IntN(3) > 0 {
		h.spare.fails = now.Add(between(w.luck, 30*time.Second, 6*time.Minute))
	}
	w.chassis[given.Chassis] = h.spare.Host
	w.fault("name-taken", h.Name, "%s has the name; the host is on: %t", given.Chassis, h.On)
}

// tickSpare lets the other machine hang, and the host get its name back. w.mu is held.
func (h *host) tickSpare(now time.Time) {
	s := &h.spare
	switch {
	case !h.Retired:
	case h.Gone, now.After(s.leaves):
		h.getName()
	case !s.fails.IsZero() && now.After(s.fails):
		s.fails = time.Time{}
		s.Hang(time.Time{})
		h.w.note(h.Name, "%s hangs", s.Chassis)
		if h.w.luck.IntN(3) == 0 {
			h.w.api.RemoveNode(h.Name)
			delete(h.w.api.Leases, h.Name) // as its Node owned it
			h.Owned = fake.Owned{}         // nobody has saved it
			h.w.note(h.Name, "a person deletes its Node")
		}
	}
}

// getName gives a host its name back: it boots, unless a run has it off. w.mu is held.
func (h *host) getName() {
	h.w.note(h.Name, "it has its name back")
	h.w.api.DropHost(h.spare.Host)
	h.Retired, h.spare = false, spare{}
	_, open := h.w.open(h.Name)
	switch {
	case h.Gone:
	case h.On:
		h.Boot()
	case !open:
		h.Power(true, "foreign hand")
	}
}

// giveNamesBack ends all this. w.mu is held.
func (w *World) giveNamesBack() {
	for _, h := range w.hosts {
		if h.Retired {
			h.getName()
		}
	}
}

// dropStrangersNode is what people do about a Node that a machine has left behind which has gone: nobody else
// may take it for its own. w.mu is held.
func (h *host) dropStrangersNode() {
	w, n := h.w, h.w.api.Nodes[h.Name]
	if h.Retired || h.Gone || n == nil || n.Ready == "True" {
		return
	}
	if m := w.machineOf(n); m != nil && m != h.Host {
		w.note(h.Name, "people delete the Node of %s, which has gone", m.Chassis)
		w.api.RemoveNode(h.Name)
		h.Owned = fake.Owned{} // nobody has saved it
	}
}

// tickLives simulates one second of what happens to hosts apart from their records. w.mu is held.
func (w *World) tickLives(now time.Time) {
	for _, h := range w.hosts {
		h.tickSpare(now)
		h.spell()
		if h.Retired {
			h.life = now
		} else if h.On {
			h.life = h.OnSince
		}
	}
	w.checkHealth(now)
	w.backUp(now)
}

// spell lets a kernel that boots write the UUID of its host in another way: in capitals, or with
// the first three groups swapped. w.mu is held.
func (h *host) spell() {
	if h.w.plan.Spells == 0 || h.Kernel != fake.Booting || h.spelt == h.Boots || !bmc.UUIDsMatch(h.NodeUUID, h.UUID) {
		return
	}
	if h.spelt = h.Boots; h.w.luck.Float64() < h.w.plan.Spells {
		h.NodeUUID = dashed(bmc.UUIDForms(h.UUID)[h.w.luck.IntN(2)])
		if h.w.luck.IntN(2) == 0 {
			h.NodeUUID = strings.ToUpper(h.NodeUUID)
		}
		h.w.fault("uuid-in-other-letters", h.Name, "%s", h.NodeUUID)
	}
}

// dashed is a UUID of 32 digits as a kernel writes it.
func dashed(u string) string {
	return strings.Join([]string{u[:8], u[8:12], u[12:16], u[16:20], u[20:]}, "-")
}

// boots is how long a boot takes: for ever, if the host is broken.
func (h *host) boots() time.Duration {
	if p := h.w.plan.Breaks; p > 0 && !h.w.calm && !h.broken && h.w.luck.Float64() < p {
		h.broken = true
		h.w.fault("does-not-boot", h.Name, "")
	}
	if h.broken {
		return 1000 * time.Hour
	}
	return between(h.rng, 25*time.Second, 75*time.Second)
}

// switchOnByHand lets a person switch on a host that fenced has switched off, at random. While no
// fenced can do it, that is what people are told to do (docs/state.md). w.mu is held.
func (w *World) switchOnByHand(now time.Time) {
	often := w.plan.Hands / 3600
	if !slices.ContainsFunc(w.instances, func(i *instance) bool { return i.cur != nil && !i.cur.isDisturbed(now) && !i.cur.dead }) {
		often *= 10
	}
	for _, h := range w.hosts {
		if often > 0 && h.offByFenced() && now.Sub(h.OnSince) > 5*time.Second && w.luck.Float64() < often {
			h.Power(true, "foreign hand")
			w.fault("on-by-hand", h.Name, "")
		}
	}
}

// isolated is called before a Node is isolated. At times every fenced loses the store just then, for
// so long that a person does not wait. w.mu is held.
func (w *World) isolated(n *fake.Node, r remediate.Run, b remediate.Backup) {
	w.auditIsolated(n, r, b)
	if w.plan.Hands == 0 || w.calm || w.luck.IntN(5) > 0 {
		return
	}
	until := time.Now().Add(between(w.luck, 2*time.Minute, 8*time.Minute))
	w.fault("store-lost", n.Name, "until %s", until.Sub(w.began).Round(time.Second))
	for _, i := range w.instances {
		i.storeCut = times.Later(i.storeCut, until)
	}
}

// offByFenced says whether a host is off, and fenced has switched it off.
func (h *host) offByFenced() bool { return !h.On && !h.Gone && h.OffBy != "foreign hand" }

// point sets the address of a BareMetalHost. Its owner wants the host on unless
// it has a power lock.
func (w *World) point(h, to *host) {
	if h.metal == to {
		return
	}
	if h.metal != nil {
		w.note(h.Name, "BareMetalHost leads to %s", to.Name)
	}
	h.metal = to
	w.api.ChangeMetal(h.Name, func(m *policy.Host) {
		m.Address, m.CredentialsName, m.ConsumerRef = "ipmi://"+to.address(), "bmc-"+h.Name, fake.Namespace+"/m-"+h.Name
	})
}

// tickMetal simulates the owner of the hosts' power: our power lock powers a host
// off, and without one it powers on what is off.
func (w *World) tickMetal(now time.Time) {
	for _, h := range w.hosts {
		m := w.api.Metal[h.Name]
		if m == nil || now.Before(h.acts) || h.Gone {
			continue
		}
		h.acts = now.Add(between(h.rng, 5*time.Second, 40*time.Second))
		switch b := &h.BMC; {
		case h.metal != h: // it no longer knows the hardware
		case b.Fault != fake.NoFault && b.Fault != fake.Slow && b.Fault != fake.Stale, !b.Up(now):
		case fake.Held(m) && h.On:
			h.Power(false, "BareMetalHost is held")
		case !fake.Held(m) && m.Online && !h.On:
			h.Power(true, "BareMetalHost is online")
		}
	}
}
