package sim

import (
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// metalHost is a BareMetalHost, whose owner wants the host on unless somebody
// holds it off.
type metalHost struct {
	node   string
	leads  *host // whose BMC its address is
	hold   bool  // ours
	online bool
	acts   time.Time // when its owner reconciles next
}

func (a *apiServer) addMetal(h *host) {
	a.metal[h.name] = &metalHost{node: h.name, leads: h, online: true}
	a.showMetal(a.metal[h.name])
}

func (a *apiServer) showMetal(m *metalHost) {
	a.next()
	h := &policy.Host{Namespace: namespace, Name: m.node, UID: "bmh-" + m.node, Address: "ipmi://" + m.leads.address(),
		CredentialsName: "bmc-" + m.node, Online: m.online, ConsumerRef: namespace + "/m-" + m.node, Annotations: map[string]string{}}
	if m.hold {
		h.Annotations["reboot.metal3.io/fenced"] = `{"mode":"hard"}`
	}
	a.show(policy.ObjectID{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: namespace, Name: m.node}, h)
}

// tickMetal is the owner of the hosts' power: our hold is a power-off, and without
// one it switches on what is off.
func (a *apiServer) tickMetal(now time.Time) {
	for _, h := range a.w.hosts {
		m := a.metal[h.name]
		if m == nil || now.Before(m.acts) || h.gone {
			continue
		}
		m.acts = now.Add(between(h.rng, 5*time.Second, 40*time.Second))
		switch b := &h.bmc; {
		case m.leads != h: // it does not know the hardware any more
		case b.mood != wellBehaved && b.mood != slow && b.mood != stale, now.Before(b.upAt), !h.supplied():
		case m.hold && h.on:
			h.power(false, "BareMetalHost is held")
		case !m.hold && m.online && !h.on:
			h.power(true, "BareMetalHost is online")
		}
	}
}
