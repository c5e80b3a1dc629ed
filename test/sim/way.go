package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// way is the host to whose BMC, and the host to whose outlets, an entry of
// hosts.d leads.
type way struct{ bmc, outlets *host }

func (h *host) address() string { return fmt.Sprintf("192.0.2.%d", h.index()+1) }

// device is the BMC of a host, with the account that it accepts.
func (h *host) device() bmc.Device {
	return bmc.Device{Driver: bmc.DriverIPMI, Username: "root", Password: h.password(),
		Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: h.address(), Port: 623}}
}

func (h *host) plug(i int) bmc.Device {
	return bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc_snmp", Username: "root", Password: h.w.password("outlets"),
		Endpoint: bmc.Endpoint{Host: fmt.Sprintf("198.51.100.%d", i+1)}, Parameters: map[string]string{"plug": fmt.Sprint(h.index() + 1)}}
}

// entry is the administrator's entry of hosts.d, which should lead to the host.
func (h *host) entry(leads way) bmc.Host {
	d := leads.bmc.device()
	d.Password = h.password()
	levels := []bmc.Level{{Devices: []bmc.Device{d}}}
	if len(h.outlets) > 0 {
		levels = append(levels, bmc.Level{Devices: []bmc.Device{leads.outlets.plug(0), leads.outlets.plug(1)}})
	}
	return bmc.Host{Name: cluster + "/" + h.Name, IdentityMode: "required", Source: "hosts.d", Levels: levels, Protected: h.protected}
}

// choice is the host as a person enrolls it.
func (h *host) choice() bmc.Host {
	if h.listed {
		return h.entry(way{h, h})
	}
	return bmc.Host{Name: cluster + "/" + fake.Namespace + "/" + h.Name, Levels: []bmc.Level{{Devices: []bmc.Device{h.device()}}}}
}

// pinOf is what `fencectl bmc enroll` stores for a host.
func pinOf(h *host) state.Pin {
	e := h.choice()
	var choice []string
	for _, l := range e.Levels {
		for _, d := range l.Devices {
			choice = append(choice, d.Fingerprint())
		}
	}
	return state.Pin{Host: e.Name, Node: h.Name, Address: e.Address(), Devices: strings.Join(e.Keys(), "\n"), Choice: strings.Join(choice, "\n"),
		SystemUUID: h.UUID, BMCUUID: h.UUID, At: h.w.began, EnrolledBy: "uid 0"}
}

// enroll pins the outlets of every host, as a person does before use, and most of
// the BareMetalHosts without an entry in hosts.d.
func (w *World) enroll(ctx context.Context) error {
	for i, h := range w.hosts {
		if h.listed && len(h.outlets) == 0 || !h.listed && i%3 == 2 {
			continue
		}
		if _, err := state.SavePin(ctx, w.store, pinOf(h)); err != nil {
			return err
		}
		h.pinned = true
	}
	return nil
}

// deviceAt finds the device at an address. w.mu is held.
func (w *World) deviceAt(d bmc.Device) (*host, *outlet) { return w.deviceOf(d.Key()) }

// deviceOf finds the device with a key. w.mu is held.
func (w *World) deviceOf(key string) (*host, *outlet) {
	for _, h := range w.hosts {
		if h.address() == key {
			return h, nil
		}
		for i, o := range h.outlets {
			if h.plug(i).Key() == key {
				return h, o
			}
		}
	}
	return nil, nil
}

// devices finds all devices that the lines of a record name; a nil host is a
// device outside of this world. w.mu is held.
func (w *World) devices(keys string) (list []logKey) {
	for key := range strings.SplitSeq(keys, "\n") {
		if key != "" {
			h, o := w.deviceOf(key)
			list = append(list, logKey{h, o})
		}
	}
	return list
}

// inventory is hosts.d as one process of a fenced has read it.
type inventory struct{ inc *incarnation }

// List implements hosts.Inventory.
func (v inventory) List(string) (names []string) {
	v.inc.i.w.do(func() {
		for _, h := range v.inc.i.w.hosts {
			if _, listed := v.inc.knows.ways[h.Name]; listed {
				names = append(names, h.Name)
			}
		}
	})
	return names
}

// Protected implements hosts.Inventory.
func (v inventory) Protected(_, node string) (is bool) {
	v.inc.i.w.do(func() {
		_, listed := v.inc.knows.ways[node]
		is = listed && v.inc.i.w.hostOf(node).protected
	})
	return is
}

// Refused and Unread implement hosts.Inventory: nothing is wrong with the files of a world.
func (inventory) Refused(string, string) string { return "" }
func (inventory) Unread() string                { return "" }

func (v inventory) Bare(cluster, node string) *bmc.Host {
	if e, found, _ := v.Find(context.Background(), cluster, node); found {
		return &e
	}
	return nil
}

func (v inventory) Find(_ context.Context, _, node string) (e bmc.Host, found bool, err error) {
	v.inc.i.w.do(func() {
		var leads way
		if leads, found = v.inc.knows.ways[node]; found {
			e = v.inc.i.w.hostOf(node).entry(leads)
		}
	})
	return e, found, nil
}

// names returns the hosts of these devices.
func names(list []logKey) string {
	var texts []string
	for _, k := range list {
		text := "nobody's device"
		switch {
		case k.outlet != nil:
			text = "an outlet of " + k.h.Name
		case k.h != nil:
			text = "the BMC of " + k.h.Name
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

// checkHealth lets each fenced ask the BMC of one host in turn, as package sweep does, and record
// whose it is. It does so where names move to other machines. w.mu is held.
func (w *World) checkHealth(now time.Time) {
	const every = 10 // seconds
	n := int(now.Sub(w.began) / time.Second)
	h := w.hosts[n/every%len(w.hosts)]
	if w.plan.Names == 0 || n%every > 0 || h.BMC.Fault != fake.NoFault || !h.BMC.Up(now) {
		return
	}
	for _, i := range w.instances {
		if c := i.cur; c != nil && !c.dead && c.engine != nil {
			r, _ := h.BMC.Reading(now)
			r.Session = 1
			e := c.engine
			w.workers.Go(func() { c.checkBMC(e, h, r) })
		}
	}
}

func (c *incarnation) checkBMC(e *engine.Engine, h *host, r bmc.Reading) {
	w, ctx := h.w, c.ctx
	s, err := e.SubjectOf(ctx, cluster, h.Name)
	var at *host
	if err == nil && s.Err == nil {
		w.do(func() { at, _ = w.deviceAt(s.Host.Levels[0].Devices[0]) })
	}
	if at != h { // its entry leads elsewhere for a while
		return
	}
	k := hosts.Checked{Subject: s, At: time.Now(), Reading: r, Identity: e.Identify(ctx, s, 0, 0, r)}
	e.Checked(ctx, k)
	w.do(func() {
		switch {
		case c.dead, w.plan.Instances > 1 && w.owners.holder != c, w.plan.StoreFails > 0, c.isDisturbed(time.Now()): // it may not have stored anything
		case k.Identity == guard.IdentityMatches:
			h.spare.refuted = time.Time{}
		case k.Identity == guard.IdentityDiffers && h.Retired && h.spare.refuted.IsZero():
			h.spare.refuted = time.Now()
		}
	})
}
