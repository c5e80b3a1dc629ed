package hosts

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Subject is one host of the inventory as a health check of its BMCs needs it.
type Subject struct {
	Cluster string
	Node    string // empty for a BareMetalHost whose Machine has no Node yet
	// BareMetalHost is "namespace/name" where there is one, also beside an entry of
	// hosts.d.
	BareMetalHost string
	// Host has its credentials filled in, unless Withheld forbids. It is empty when Err
	// is not nil.
	Host bmc.Host
	// Err is a *Refusal that says why the host cannot be used.
	Err error
	// Withheld is why its BMCs are not asked: the password would go where nobody has
	// vouched for. Only to enroll them is. // I10
	Withheld *reason.Refusal
	// SystemUUID is the Node's.
	SystemUUID string
	// Serial and MACs are the hardware's second factor, where a BareMetalHost
	// tells them; lower case.
	Serial string
	MACs   []string
	// SameMACs says which other host has one of its MAC addresses; empty: none.
	SameMACs string
	// Healthy: the Node is Ready=True now, so what its BMC says can be pinned.
	Healthy bool
}

// Checked is what a health check found about one device of a Subject.
type Checked struct {
	Subject       Subject
	Level, Device int // indexes into Subject.Host.Levels and its Devices
	At            time.Time
	// Reading is the power reading; Err why there is none.
	Reading bmc.Reading
	Err     error
	Latency time.Duration // of the reading, session set-up included
	// Description is empty when the device tells none, or was not asked this time.
	Description bmc.Description
	// Identity is what Hosts.IdentifyDevice made of the reading.
	Identity guard.IdentityVerdict
}

// device is the one that was checked; false when the indexes name none.
func (c Checked) device() (bmc.Device, bool) {
	levels := c.Subject.Host.Levels
	if c.Level < 0 || c.Level >= len(levels) || c.Device < 0 || c.Device >= len(levels[c.Level].Devices) {
		return bmc.Device{}, false
	}
	return levels[c.Level].Devices[c.Device], true
}

// Inventory lists every host of every cluster, those of hosts.d and the
// BareMetalHosts that a Machine names, each way to one host once. A cluster that was not seen whole yet
// is one Subject without any name, refused as NotSynced. It reads passwords and,
// where they are not remembered, Secrets.
func (h *Hosts) Inventory(ctx context.Context) []Subject {
	var all []Subject
	for _, c := range h.clusters {
		all = append(all, c.inventory(ctx)...)
	}
	slices.SortFunc(all, func(a, b Subject) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.BareMetalHost, b.BareMetalHost))
	})
	return all
}

// SubjectOf is the host of one Node. An error is a *Refusal: nobody knows the
// Node, or it has no host; why a host cannot be used is in Subject.Err.
func (c *Cluster) SubjectOf(ctx context.Context, node string) (Subject, error) {
	t, known := c.opt.View.TargetOn(node)
	if _, listed, err := c.hosts.opt.Inventory.Find(ctx, c.opt.Name, node); !known && !listed && err == nil {
		return Subject{}, &reason.Refusal{Reason: reason.NoSuchNode, Message: "no Node, no Machine's node and no entry of hosts.d is called " + node}
	}
	s := c.subject(ctx, t)
	if r, ok := reason.AsRefusal(s.Err); ok && r.Reason == reason.NoHost {
		return Subject{}, r
	}
	return s, nil
}

// inventory lists the hosts of one cluster; before it was seen whole nobody knows
// which BareMetalHost is whose.
func (c *Cluster) inventory(ctx context.Context) (all []Subject) {
	if !c.opt.View.Seen() {
		return []Subject{{Cluster: c.opt.Name, Err: errNotSeen()}}
	}
	nodes := c.hosts.opt.Inventory.List(c.opt.Name)
	without := map[string]bool{} // a Node, so far
	for _, m := range c.opt.View.Machines() {
		switch key := c.bareMetalHostOf(m); {
		case key != "" && m.NodeName != "":
			nodes = append(nodes, m.NodeName)
		case key != "":
			without[key] = true
		}
	}
	slices.Sort(nodes)
	for _, node := range slices.Compact(nodes) {
		t, _ := c.opt.View.TargetOn(node)
		if s := c.subject(ctx, t); s.Host.Name != "" || s.Err != nil {
			all = append(all, s)
			delete(without, s.BareMetalHost)
		}
	}
	for key := range without {
		all = append(all, c.subject(ctx, remediate.Target{Cluster: c.opt.Name, BareMetalHost: key}))
	}
	return all
}

// bareMetalHostOf is the BareMetalHost that a Machine names, "" when there is none.
func (c *Cluster) bareMetalHostOf(m *policy.Machine) string {
	if !m.NamesHost() {
		return ""
	}
	h, err := c.opt.View.HostOf(m)
	if err != nil {
		return ""
	}
	return h.Key()
}

// subject finds the host of a target, of which only Node, BareMetalHost and
// system UUID matter.
func (c *Cluster) subject(ctx context.Context, t remediate.Target) Subject {
	s := Subject{Cluster: c.opt.Name, Node: t.Node, BareMetalHost: t.BareMetalHost, SystemUUID: t.SystemUUID}
	if s.Host, s.Err = c.Entry(ctx, t); s.Err != nil {
		s.Host = bmc.Host{}
	} else if s.Withheld = c.withheld(s.Host, t); s.Withheld == nil {
		filled := withSecrets(ctx, s.Host, c.rememberedCredentials)
		if s.Withheld = c.otherAccount(ctx, filled, t); s.Withheld == nil {
			s.Host = filled
		}
	}
	if b := c.bareMetalHost(t); b != nil {
		s.Serial, s.MACs = b.Serial, b.MACs
	}
	s.SameMACs = c.hosts.sameMACs(s)
	s.Healthy = c.opt.View.Healthy(t)
	return s
}

// IdentifyDevice compares who answered at one device with whom the subject is said to be.
func (h *Hosts) IdentifyDevice(ctx context.Context, s Subject, level, device int, r bmc.Reading) guard.IdentityVerdict {
	c, err := h.cluster(s.Cluster)
	d, ok := Checked{Subject: s, Level: level, Device: device}.device()
	if err != nil || !ok {
		return guard.IdentityUnproven
	}
	return identifyDevice(s.Host, d, r.Identity, c.claims(ctx, s.Host, s.target(), false).of(s.Host, level, device))
}

// target is the subject as far as finding its host goes.
func (s Subject) target() remediate.Target {
	return remediate.Target{Cluster: s.Cluster, Node: s.Node, BareMetalHost: s.BareMetalHost, SystemUUID: s.SystemUUID}
}

// names are those under which the subject's host is indexed; a Node may have a
// BareMetalHost and an entry of hosts.d.
func names(cluster, node, bareMetalHost string) (list []string) {
	for _, name := range []string{node, bareMetalHost} {
		if name != "" {
			list = append(list, cluster+"/"+name)
		}
	}
	return list
}
