package hosts

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Subject is one host of the inventory, as the BMC health check needs it.
type Subject struct {
	Cluster string
	Node    string // "" if the Machine has no Node yet
	// Machine is "namespace/name", "" if there is none. MachineUID is its UID.
	Machine, MachineUID string
	// BareMetalHost is "namespace/name", "" if there is none. An entry of hosts.d may exist as
	// well.
	BareMetalHost string
	// Host has its credentials, unless Withheld forbids that. It is empty if Err is not nil.
	Host bmc.Host
	// Err is a *reason.Refusal that says why the host cannot be used; nil if it can.
	Err error
	// Withheld says why its BMCs are not read, except to enroll them: the password would go to
	// an address that nobody has confirmed. // I10
	Withheld *reason.Refusal
	// SystemUUID is the Node's.
	SystemUUID string
	// Serial and MACs are what a BareMetalHost tells about the hardware, in lower case.
	Serial string
	MACs   []string
	// SameMACs says which other host has one of its MAC addresses; "" if none has.
	SameMACs string
	// Healthy means that the Node is Ready=True now, so its BMC's identity can be pinned.
	Healthy bool
}

// Checked is the result of a health check of one device of a Subject.
type Checked struct {
	Subject       Subject
	Level, Device int // indexes into Subject.Host.Levels and its Devices
	At            time.Time
	// Reading is the power reading. Err says why there is none.
	Reading bmc.Reading
	Err     error
	Latency time.Duration // of the reading, with the setup of the session
	// Description is empty if the device has none, or was not asked for it this time.
	Description bmc.Description
	// Identity is the verdict of Hosts.IdentifyDevice.
	Identity guard.IdentityVerdict
}

// LastCheck is the result of the newest health check of one device of a host.
type LastCheck struct {
	Level, Device int       // indexes into bmc.Host.Levels and its Devices
	At            time.Time // zero: not checked yet
	// Reason and Problem say why a fence could not use the device; they are empty if it could.
	Reason   reason.Code
	Problem  string
	Power    bmc.PowerState
	Identity guard.IdentityVerdict
	UUID     string // as the device reports it
}

// device returns the device that was checked. It returns false if the indexes name none.
func (c Checked) device() (bmc.Device, bool) {
	levels := c.Subject.Host.Levels
	if c.Level < 0 || c.Level >= len(levels) || c.Device < 0 || c.Device >= len(levels[c.Level].Devices) {
		return bmc.Device{}, false
	}
	return levels[c.Level].Devices[c.Device], true
}

// Inventory lists every host of every cluster once: those of hosts.d, and the BareMetalHosts that
// a Machine names. A cluster that was not seen yet is one Subject without a name, refused as
// NotSynced. Inventory reads passwords, and the Secrets that are not cached.
func (h *Hosts) Inventory(ctx context.Context) []Subject {
	var all []Subject
	for _, c := range h.clusters.All() {
		all = append(all, c.inventory(ctx)...)
	}
	slices.SortFunc(all, func(a, b Subject) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.BareMetalHost, b.BareMetalHost))
	})
	return all
}

// SubjectOf returns the host of one Node, or of the Machine "namespace/name". The error is a
// *reason.Refusal: the Node or Machine is not known, or it has no host. If the host cannot be used,
// Subject.Err says why.
func (c *Cluster) SubjectOf(ctx context.Context, of string) (Subject, error) {
	isMachine := strings.Contains(of, "/")
	_, known := c.opt.View.TargetOf(of)
	if !isMachine {
		_, known = c.opt.View.TargetOn(of)
	}
	_, listed, err := c.hosts.listed.inventory().Find(ctx, c.opt.Name, of)
	switch {
	case known || listed || err != nil:
	case isMachine:
		return Subject{}, &reason.Refusal{Reason: reason.NoSuchMachine, Message: "no Machine and no entry of hosts.d is called " + of}
	default:
		return Subject{}, &reason.Refusal{Reason: reason.NoSuchNode, Message: "no Node, no Machine's node and no entry of hosts.d is called " + of}
	}
	s := c.subject(ctx, c.targetNamed(of))
	if r, ok := reason.AsRefusal(s.Err); ok && r.Reason == reason.NoHost {
		return Subject{}, r
	}
	return s, nil
}

// inventory lists the hosts of one cluster. Before the whole cluster was seen, nobody knows which
// BareMetalHost belongs to which Node.
func (c *Cluster) inventory(ctx context.Context) (all []Subject) {
	if !c.opt.View.Seen() {
		return []Subject{{Cluster: c.opt.Name, Err: errNotSeen()}}
	}
	var targets []string // the names of Nodes, and "namespace/name" of Machines without one
	for _, of := range c.hosts.listed.inventory().List(c.opt.Name) {
		targets = append(targets, c.nodeOrMachine(of))
	}
	nodeless := map[string]string{} // Machines without a Node so far, by their BareMetalHost
	for _, m := range c.opt.View.Machines() {
		switch key := c.BareMetalHostOf(m); {
		case key != "" && m.NodeName != "":
			targets = append(targets, m.NodeName)
		case key != "" && (nodeless[key] == "" || m.Key() < nodeless[key]):
			nodeless[key] = m.Key()
		}
	}
	slices.Sort(targets)
	for _, of := range slices.Compact(targets) {
		if s := c.subject(ctx, c.targetNamed(of)); s.Host.Name != "" || s.Err != nil {
			all = append(all, s)
			delete(nodeless, s.BareMetalHost)
		}
	}
	for key, machine := range nodeless {
		t := c.targetNamed(machine)
		t.BareMetalHost = key
		all = append(all, c.subject(ctx, t))
	}
	return all
}

// nodeOrMachine returns the Node of a Machine that hosts.d names, if the Machine has one, so that
// each host is listed once.
func (c *Cluster) nodeOrMachine(of string) string {
	if t, _ := c.opt.View.TargetOf(of); t.Node != "" {
		return t.Node
	}
	return of
}

// targetNamed returns the target with a Node of this name, or, if the name has a slash, with this
// Machine.
func (c *Cluster) targetNamed(of string) remediate.Target {
	namespace, name, isMachine := strings.Cut(of, "/")
	if !isMachine {
		t, _ := c.opt.View.TargetOn(of)
		return t
	}
	t, known := c.opt.View.TargetOf(of)
	if !known {
		t = remediate.Target{Cluster: c.opt.Name, Namespace: namespace, Machine: name}
	}
	return t
}

// BareMetalHostOf returns the BareMetalHost that a Machine names, "" if there is none.
func (c *Cluster) BareMetalHostOf(m *policy.Machine) string {
	if m == nil || !m.NamesHost() {
		return ""
	}
	h, err := c.opt.View.HostOf(m)
	if err != nil {
		return ""
	}
	return h.Key()
}

// subject finds the host of a target. Only Node, Machine, BareMetalHost and system UUID of the
// target matter.
func (c *Cluster) subject(ctx context.Context, t remediate.Target) Subject {
	s := Subject{Cluster: c.opt.Name, Node: t.Node, Machine: t.MachineKey(), MachineUID: t.MachineUID,
		BareMetalHost: t.BareMetalHost, SystemUUID: t.SystemUUID}
	if s.Host, s.Err = c.Entry(ctx, t); s.Err != nil {
		s.Host = bmc.Host{}
	} else if s.Withheld = c.metal.withheld(s.Host, t); s.Withheld == nil {
		filled := withSecrets(ctx, s.Host, c.secrets.recent)
		if s.Withheld = c.metal.otherAccount(ctx, filled, t); s.Withheld == nil {
			s.Host = filled
		}
	}
	if b := c.bareMetalHost(t); b != nil {
		s.Serial, s.MACs = b.Serial, b.MACs
	}
	s.SameMACs = c.hosts.catalog.sameMACs(names(s.Cluster, s.target()))
	s.Healthy = c.opt.View.Healthy(t)
	return s
}

// IdentifyDevice compares the identity that one device reported with the subject's.
func (h *Hosts) IdentifyDevice(_ context.Context, s Subject, level, device int, r bmc.Reading) guard.IdentityVerdict {
	c, err := h.cluster(s.Cluster)
	d, ok := Checked{Subject: s, Level: level, Device: device}.device()
	if err != nil || !ok {
		return guard.IdentityUnproven
	}
	return identifyDevice(s.Host, d, r.Identity, c.expected(s.Host, s.target(), false).of(s.Host, level, device))
}

// target is the subject as a target, with what finds its host.
func (s Subject) target() remediate.Target {
	namespace, machine, _ := strings.Cut(s.Machine, "/")
	return remediate.Target{Cluster: s.Cluster, Node: s.Node, Namespace: namespace, Machine: machine, MachineUID: s.MachineUID,
		BareMetalHost: s.BareMetalHost, SystemUUID: s.SystemUUID}
}
