package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

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
		i.storeCut = latest(i.storeCut, until)
	}
}

// offByFenced says whether a host is off, and fenced has switched it off.
func (h *host) offByFenced() bool { return !h.On && !h.Gone && h.OffBy != "foreign hand" }
