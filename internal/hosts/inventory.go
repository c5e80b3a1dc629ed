package hosts

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
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
	// Bare is what is kept of the host in any case: the one of hosts.d, or of the BareMetalHost, as it was when it was indexed, without credentials. Nobody
	// changes it. It is nil if there is none.
	Bare *bmc.Host
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
	At            time.Time // of the answer; zero: not checked yet
	Took          time.Duration
	LastOn        time.Time // when a check last read the target's host On; zero: none did
	// Reason and Problem say why a fence could not use the device; they are empty if it could.
	Reason   reason.Code
	Problem  string
	Power    bmc.PowerState
	Identity guard.IdentityVerdict
	UUID     string // as the device reports it
}

// Asked is when the device was asked: its answer may describe that time. // I26
func (c LastCheck) Asked() time.Time { return c.At.Add(-c.Took) }

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
func (h *Hosts) Inventory(ctx context.Context) iter.Seq[Subject] {
	return func(yield func(Subject) bool) {
		for _, c := range h.clusters.All() {
			for s := range c.inventory(ctx) {
				if !yield(s) {
					return
				}
			}
		}
	}
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
	_, listed, err := (*c.hosts.listed.Load()).Find(ctx, c.opt.Name, of)
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
func (c *Cluster) inventory(ctx context.Context) iter.Seq[Subject] {
	return func(yield func(Subject) bool) {
		if !c.opt.View.Seen() {
			yield(Subject{Cluster: c.opt.Name, Err: errNotSeen()})
			return
		}
		targets, nodeless := c.inventoryTargets()
		for _, of := range targets {
			s := c.subject(ctx, c.targetNamed(of))
			if s.Host.Name == "" && s.Err == nil {
				continue
			}
			delete(nodeless, s.BareMetalHost)
			if !yield(s) {
				return
			}
		}
		for key, machine := range nodeless {
			t := c.targetNamed(machine)
			t.BareMetalHost = key
			if !yield(c.subject(ctx, t)) {
				return
			}
		}
	}
}

// inventoryTargets returns what may have a host: the names of Nodes, and the "namespace/name" of Machines without one. nodeless
// are the Machines without a Node so far, by their BareMetalHost.
func (c *Cluster) inventoryTargets() (targets []string, nodeless map[string]string) {
	for _, of := range (*c.hosts.listed.Load()).List(c.opt.Name) {
		t, _ := c.opt.View.TargetOf(of)
		targets = append(targets, cmp.Or(t.Node, of)) // by its Node, if a Machine of hosts.d has one: each host is listed once
	}
	nodeless = map[string]string{}
	for _, m := range c.opt.View.Machines() {
		switch key := c.BareMetalHostOf(m); {
		case key != "" && m.NodeName != "":
			targets = append(targets, m.NodeName)
		case key != "" && (nodeless[key] == "" || m.Key() < nodeless[key]):
			nodeless[key] = m.Key()
		}
	}
	slices.Sort(targets)
	return slices.Compact(targets), nodeless
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
	if e := c.hosts.catalog.index.get(s.Host.Name); e != nil {
		s.Bare = e.host
	}
	if b := bareMetalHost(c.opt.View, t); b != nil {
		s.Serial, s.MACs = b.Serial, b.MACs
	}
	s.SameMACs = c.hosts.catalog.sameMACs(s.names())
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
	want := c.expected(s.Host, s.target(), false)
	want.report = recordedReport(want.pin, s.Host, level, device)
	return identifyDevice(s.Host, d, r.Identity, want)
}

// target is the subject as a target, with what finds its host.
func (s Subject) target() remediate.Target {
	namespace, machine, _ := strings.Cut(s.Machine, "/")
	return remediate.Target{Cluster: s.Cluster, Node: s.Node, Namespace: namespace, Machine: machine, MachineUID: s.MachineUID,
		BareMetalHost: s.BareMetalHost, SystemUUID: s.SystemUUID}
}

// Checked records the result of a health check. It indexes what must be unique. It pins the
// identity of a healthy host, for the time when its Node is gone and cannot tell it. // I9, I10
func (h *Hosts) Checked(ctx context.Context, k Checked) {
	c, err := h.cluster(k.Subject.Cluster)
	d, ok := k.device()
	if err != nil || !ok || k.Subject.Err != nil {
		return
	}
	h.own.resolve(ctx, d)
	owner := c.opt.Lead.Leads() // otherwise the owner of the cluster stores the result
	c.pins.compareNode(c.opt.View.Node(k.Subject.Node))
	if owner {
		c.pins.saveContradictions(ctx)
		c.contradict(ctx, k, d)
		c.endIfChanged(ctx, k, d)
	}
	if bmc.KindOf(k.Err).RefusesAccount() { // a person may have corrected the Secret
		c.secrets.forget(d)
	}
	if k.Err != nil {
		return
	}
	if l := k.Subject.Host.Levels[k.Level]; len(l.Devices) == 1 {
		h.opt.LockOut.Probed(l, nil)
	}
	h.catalog.index.report(k.Subject.Host.Name, d.Key(), deviceReport{
		uuid: h.uuidOf(d, k.Reading.Identity), macs: k.Description.MACs, class: k.Description.Class(),
	})
	if owner {
		h.pinHealthy(ctx, c, k, d)
	}
}

// pinHealthy stores the identity of a healthy host. The pin is read before the Node is looked at
// again: what contradicts it later stays.
func (h *Hosts) pinHealthy(ctx context.Context, c *Cluster, k Checked, d bmc.Device) {
	old, _, err := h.catalog.pins.get(k.Subject.Host.Name)
	match, known := bmc.MACsMatch(k.Subject.MACs, k.Description.MACs)
	otherMACs := known && !match
	first := k.Level == 0 && k.Device == 0 // one device, the first, is enough for the pin
	switch {
	case err == nil && c.pins.enrolmentHolds(k, old):
		next := old
		next.Contradicted = ""
		err = c.pins.update(ctx, old, next, k.At)
	case !k.Subject.Healthy, k.Identity != guard.IdentityMatches, otherMACs, !first, !c.pins.isNodeOn(k.Subject, k.Subject.SystemUUID):
		return
	case !h.mayPin(c, k.Subject):
		return
	case err == nil:
		err = c.pins.healthy(ctx, k, d, old)
	}
	if err != nil && ctx.Err() == nil {
		c.emit(event.Event{Type: event.Failed, Node: k.Subject.Node, Message: "store the identity pin: " + err.Error()})
	}
}

// mayPin reports whether what a subject's BMC reports may be pinned. It may not if anything but a
// missing enrolment forbids to switch it off: only a person may follow a BareMetalHost that has
// moved. // I10
func (h *Hosts) mayPin(c *Cluster, s Subject) bool {
	return !slices.ContainsFunc(h.forbidden(c, &s), func(r reason.Refusal) bool { return r.Reason != reason.NotEnrolled })
}

// PinProven stores that a run has proven which machine a BMC powers, for a later run without a Node.
// It leaves an enrolment as it is, the pin of a BareMetalHost that has moved, and one that is
// contradicted: what the run has read may be older than that. After a failure only the later run
// lacks it.
func (c *Cluster) PinProven(ctx context.Context, r remediate.Run) {
	t := r.Target
	if t.Host == "" || !bmc.UsableUUID(t.SystemUUID) {
		return
	}
	old, found, err := c.hosts.catalog.pins.get(t.Host)
	moved := old.Devices != t.Devices || old.Choice != t.Choice
	if err == nil && found && (old.EnrolledBy != "" || old.Contradicted != "" || t.BareMetalHost != "" && moved) {
		return
	}
	if err == nil {
		next := old
		next.Host, next.Node, next.SystemUUID, next.MachineUID = t.Host, t.Node, t.SystemUUID, pinnedMachine(t.Host, t.MachineUID)
		next.Address, next.Devices, next.Choice, next.Secret = t.Address, t.Devices, t.Choice, t.Secret
		switch {
		case moved:
			next.Serial, next.BMCUUID, next.Reported = "", "", ""
		case contradicts(old.SystemUUID, t.SystemUUID): // it is that of the former board
			next.Serial = ""
		}
		err = c.pins.update(ctx, old, next, time.Now())
	}
	if err != nil {
		c.emit(event.Event{Type: event.Failed, Node: t.Node, Run: r.ID, Message: "store the identity pin: " + err.Error()})
	}
}

// contradictionAge is for how long a Node must stay alive after the first Off. A Node that has
// just died is Ready for 40 s more.
const contradictionAge = time.Minute

// outletContradictions are the devices that read Off while their Node was Ready. They are not
// kept over a restart: the devices are read again.
type outletContradictions struct {
	mu    sync.Mutex
	first map[string]contradiction // the first of an unbroken series, by host and device
}

// contradiction is one Off reading while the Node was Ready.
type contradiction struct {
	at    time.Time
	lease string // the resourceVersion of the kubelet's Lease then
}

// add returns the first contradiction of the series about a device. It is now if there was none.
func (o *outletContradictions) add(key string, now contradiction) contradiction {
	o.mu.Lock()
	defer o.mu.Unlock()
	first, ok := o.first[key]
	if !ok {
		o.first[key], first = now, now
	}
	return first
}

// drop ends the series about a device.
func (o *outletContradictions) drop(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.first, key)
}

// dropCluster ends the series about the devices of a cluster.
func (o *outletContradictions) dropCluster(cluster string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.first {
		if of, _ := bmc.EntryOf(key); of == cluster {
			delete(o.first, key)
		}
	}
}

// contradict ends an enrolment that a device disproves: the device cannot prove its identity, and
// reads Off while the Node that it should switch stays alive. So it is another outlet now, or none,
// and its Off would be a false proof. // I1, I8
func (c *Cluster) contradict(ctx context.Context, k Checked, d bmc.Device) {
	h, offs := k.Subject.Host, c.hosts.contradictions
	key := h.Name + "\n" + d.Key()
	switch {
	case d.Identifies(), k.Subject.Healthy && k.Reading.State == bmc.Unknown:
		return // a failed reading neither proves nor disproves
	case !k.Subject.Healthy, k.Reading.State == bmc.On:
		offs.drop(key)
		return
	}
	p, found := c.hosts.catalog.enrolment(h.Name)
	if !found || !pinnedHere(p, h) {
		offs.drop(key)
		return
	}
	lease, alive := c.alive(ctx, k.Subject.Node, p.SystemUUID)
	if !alive {
		offs.drop(key)
		return
	}
	now := contradiction{at: k.At, lease: lease}
	if first := offs.add(key, now); now.at.Sub(first.at) >= contradictionAge && now.lease != first.lease {
		c.pins.revokeChecked(ctx, p, k.Subject.Node, fmt.Sprintf("%s read Off while Node %s was Ready; enroll again after checking the outlet", d, k.Subject.Node))
	}
}

// Distrust ends the enrolment of a host whose outlets a run has contradicted, so that the next run
// does not switch them again. It leaves an enrolment that is newer than all contradictions. After an error the enrolment
// may still stand, and the run must not end. // I8
func (c *Cluster) Distrust(ctx context.Context, r remediate.Run) error {
	if len(r.Contradicted) == 0 {
		return nil
	}
	at := r.Contradicted[len(r.Contradicted)-1] // the newest
	p, found := c.hosts.catalog.enrolment(r.Target.Host)
	if !found || p.At.After(at.Since) {
		return nil
	}
	return c.pins.revoke(ctx, p, r.Target.Node, fmt.Sprintf("power level %d read Off while a lower one read On; enroll again after checking the outlets", at.Level+1))
}

// alive reads, without any cache, whether the Node of a machine is Ready. lease is the
// resourceVersion of its kubelet's Lease.
func (c *Cluster) alive(ctx context.Context, node, systemUUID string) (lease string, alive bool) {
	t, known := c.opt.View.TargetOn(node)
	if !known {
		return "", false
	}
	return c.opt.View.Alive(ctx, t, systemUUID)
}
