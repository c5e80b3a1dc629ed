package hosts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
)

// Enrollment is what a person enrolled, or would enroll without DryRun.
type Enrollment struct {
	Pin     state.Pin
	Devices []EnrolledDevice // in the order of the levels
}

// EnrolledDevice is one device of an enrolled host, and what it reported.
type EnrolledDevice struct {
	Level    int
	Device   string
	Driver   bmc.Driver
	Power    bmc.PowerState
	UUID     string
	Serial   string
	System   string   // path of a Redfish system without a UUID
	MACs     []string // of a host without a UUID
	Identity guard.IdentityVerdict
	// Assurance is what the device has once it is enrolled.
	Assurance bmc.Assurance

	report *report // nil for a device that identifies its host, or never could
}

// Enroll stores a person's confirmation that the devices of a Node's host, as they are now, switch
// that very machine. It reads each device: one that proves its identity must match the machine, and
// any other must not contradict it. A refusal is a *reason.Refusal. // I8, I10
func (c *Cluster) Enroll(ctx context.Context, o wire.Order) (Enrollment, error) {
	if err := c.opt.Lead.Refuse(); err != nil {
		return Enrollment{}, err
	}
	if !c.opt.View.Seen() {
		return Enrollment{}, errNotSeen()
	}
	s, err := c.subjectToEnroll(ctx, o)
	if err != nil {
		return Enrollment{}, err
	}
	old, _, err := c.hosts.catalog.pins.get(s.Host.Name)
	if err != nil {
		return Enrollment{}, fmt.Errorf("read the pin of %s: %w", s.Host.Name, err)
	}
	x := Enrollment{Pin: state.Pin{
		Host: s.Host.Name, Version: old.Version, Node: s.Node, Address: s.Host.Address(), Devices: devicesOf(s.Host), Choice: choiceOf(s.Host),
		Secret:     strings.Join(secretsOf(c.opt.Name, &s.Host), "\n"),
		MachineUID: pinnedMachine(s.Host.Name, s.MachineUID),
		SystemUUID: machineUUID(s), Class: c.hosts.catalog.index.get(s.Host.Name).class(), At: time.Now().UTC(), EnrolledBy: o.Actor,
	}}
	if err := x.readDevices(ctx, c.hosts, s); err != nil {
		return Enrollment{}, err
	}
	if x.Pin.Reported = encodeReports(x.Devices); x.Pin.Reported != "" {
		if err := c.enrollableWithoutUUID(s, old, x); err != nil {
			return Enrollment{}, err
		}
	}
	switch {
	case o.DryRun:
		return x, nil
	case o.Shown != "" && o.Shown != x.Shown():
		return Enrollment{}, &reason.Refusal{Reason: reason.AddressChanged,
			Message: fmt.Sprintf("what would be enrolled is no longer what was shown: now it is %q; nothing was stored", x.Shown())}
	}
	if x.Pin, err = c.pins.save(ctx, x.Pin, true); err != nil {
		return Enrollment{}, err
	}
	c.emit(o.Event("enrolls " + s.Host.Address()))
	c.opt.View.Wake()
	return x, nil
}

// Shown names the devices, what tells the machines behind them, and the Secrets whose passwords they are sent, for the order that follows a dry
// run.
func (x Enrollment) Shown() string {
	lines := []string{x.Pin.SystemUUID}
	for _, d := range x.Devices {
		macs := strings.Join(slices.Sorted(slices.Values(d.MACs)), " ")
		lines = append(lines, strings.Join([]string{strconv.Itoa(d.Level + 1), d.Device, string(d.Driver), d.UUID, d.System, d.Serial, macs}, " "))
	}
	for _, secret := range x.Secrets() {
		lines = append(lines, "Secret "+secret)
	}
	return strings.Join(lines, "; ")
}

// Secrets are those that the devices name, as cluster/namespace/name.
func (x Enrollment) Secrets() []string {
	return slices.DeleteFunc(strings.Split(x.Pin.Secret, "\n"), func(secret string) bool { return secret == "" })
}

// subjectToEnroll returns the subject of an enrolment, with its host as it is configured now and the
// present credentials, or refuses it.
func (c *Cluster) subjectToEnroll(ctx context.Context, o wire.Order) (Subject, error) {
	s, err := c.SubjectOf(ctx, o.Of())
	if err == nil {
		s.Host, err = c.FindBare(ctx, s.target()) // not what the name means by now: the Machine may name another BareMetalHost // I10
	}
	if err == nil {
		err = cmp.Or(s.Err, c.enrollable(s, o))
	}
	if err != nil {
		return Subject{}, err
	}
	s.Host = withSecrets(ctx, s.Host, c.secrets.read)
	c.hosts.opt.LockOut.Forget(s.Host) // the person may have corrected the credentials
	if c.nodeless.byReport(s, o) {
		s.SystemUUID, err = c.nodeless.reportedFor(ctx, s)
	}
	return s, err
}

// readDevices reads each device of the host. The first that proves an identity gives that of the pin.
func (x *Enrollment) readDevices(ctx context.Context, h *Hosts, s Subject) error {
	for i, l := range s.Host.Levels {
		for j := range l.Devices {
			d, err := h.enrollDevice(ctx, s, i, j)
			if err != nil {
				return err
			}
			if x.Devices = append(x.Devices, d); x.Pin.BMCUUID == "" {
				x.Pin.BMCUUID, x.Pin.Serial = d.UUID, d.Serial
			}
		}
	}
	return nil
}

// enrollable refuses a subject if it is not known which machine it is, or if it exists twice.
func (c *Cluster) enrollable(s Subject, o wire.Order) error {
	if !bmc.UsableUUID(machineUUID(s)) && !c.nodeless.byReport(s, o) {
		return &reason.Refusal{Reason: reason.IdentityUnknown,
			Message: "Node " + s.Node + " shows no system UUID, and none is pinned in hosts.d; there is nothing to enroll for"}
	}
	if c.metal.isMetal(s.Host, s.target()) {
		if r := c.metal.rules.refuse(s.Host); r != nil {
			return r
		}
	}
	// A person may enroll this host although an unknown one leads to the same machine, unless only
	// the other one can prove the identity.
	if why := c.hosts.catalog.duplicateToEnroll(&s, s.Host.Identifies()); why != "" {
		return &reason.Refusal{Reason: reason.DuplicateHost, Message: why}
	}
	return nil
}

// machineUUID is the machine of a subject: the Node's system UUID, or else the one that an
// administrator wrote down.
func machineUUID(s Subject) string {
	if bmc.UsableUUID(s.SystemUUID) {
		return s.SystemUUID
	}
	return s.Host.PinnedUUID
}

// enrollDevice reads one device and compares it with the machine.
func (h *Hosts) enrollDevice(ctx context.Context, s Subject, level, device int) (EnrolledDevice, error) {
	d := s.Host.Levels[level].Devices[device]
	r, err := h.readOnce(ctx, d)
	if err != nil {
		return EnrolledDevice{}, &reason.Refusal{Reason: ReasonOf(err), Message: d.String() + " could not be read: " + reason.Sentence(err)}
	}
	host := s.Host
	if host.IdentityMode != identityPinned || host.PinnedUUID == "" {
		host.IdentityMode = "" // compare with the machine, whatever the mode is later
	}
	if why := h.own.HasUUID(r.Identity.UUID); why != "" && d.IgnoreUUID { // I13
		return EnrolledDevice{}, &reason.Refusal{Reason: reason.OwnHost, Message: d.String() + ": " + why}
	}
	d.Enrolled = isUnidentified(d, r.Identity)
	x := EnrolledDevice{
		Level: level, Device: d.String(), Driver: d.Driver, Power: r.State, UUID: r.Identity.UUID, Serial: r.Identity.Serial,
		Identity: identifyDevice(host, d, r.Identity, expectedIdentity{node: machineUUID(s)}), System: r.Identity.System, Assurance: d.Assurance(),
	}
	if d.Enrolled {
		x.report = h.reportOf(ctx, d, r.Identity)
		x.Serial, x.MACs = x.report.Serial, x.report.MACs
	}
	if d.IgnoreUUID || !bmc.UsableUUID(x.UUID) {
		x.UUID = "" // a placeholder names no machine
	}
	if x.Identity != guard.IdentityMatches && (d.Identifies() || x.Identity == guard.IdentityDiffers) {
		return x, &reason.Refusal{Reason: refusedIdentity(x.Identity),
			Message: fmt.Sprintf("%s says it is %q, and %s is %q", d, r.Identity.UUID, cmp.Or(s.Node, s.Machine), machineUUID(s))}
	}
	return x, mustReadOn(s, d, r)
}

// mustReadOn refuses a device that reads Off while its Node is Ready. A device that cannot prove
// its identity must read On: agents report off for an outlet that does not exist. // I1, I8
func mustReadOn(s Subject, d bmc.Device, r bmc.Reading) error {
	switch {
	case s.Healthy && r.State == bmc.Off:
		return &reason.Refusal{Reason: reason.IdentityMismatch, Message: d.String() + " reads Off while its Node is Ready: it switches something else"}
	case !d.Identifies() && r.State != bmc.On:
		return &reason.Refusal{Reason: reason.IdentityUnknown,
			Message: fmt.Sprintf("%s reads %s (%s), and is enrolled only while it reads On", d, r.State, r.Raw)}
	}
	return nil
}

func refusedIdentity(v guard.IdentityVerdict) reason.Code {
	if v == guard.IdentityDiffers {
		return reason.IdentityMismatch
	}
	return reason.IdentityUnknown
}

// readOnce opens a device, reads it, and ends the session.
func (h *Hosts) readOnce(ctx context.Context, d bmc.Device) (bmc.Reading, error) {
	one := bmc.Host{Name: d.String(), Levels: []bmc.Level{{Devices: []bmc.Device{d}}}}
	s, err := power.Open(h.opt.Open, one, 0, h.opt.Timing)
	if err != nil {
		return bmc.Reading{}, err
	}
	defer s.Close(ctx)
	return s.Read(ctx)
}

// A Machine without a Node has no system UUID. A person who enrolls its BMC by the name of the
// Machine confirms that what answers there now is the Machine's: the UUID that it reports. // I8

// byReport reports whether an enrolment takes the system UUID from the BMC: a person named the
// Machine, it has no Node, and nobody wrote its UUID down.
func (n *nodeless) byReport(s Subject, o wire.Order) bool {
	return o.Machine != "" && n.view.Node(s.Node) == nil && !bmc.UsableUUID(machineUUID(s))
}

// reportedFor reads the system UUID of the first device of a subject. It refuses a UUID that
// belongs to another machine. The error is a *reason.Refusal.
func (n *nodeless) reportedFor(ctx context.Context, s Subject) (string, error) {
	d := s.Host.Levels[0].Devices[0]
	refuse := func(code reason.Code, why string) (string, error) {
		return "", &reason.Refusal{Reason: code, Message: d.String() + " " + why}
	}
	r, err := n.hosts.readOnce(ctx, d)
	if err != nil {
		return refuse(ReasonOf(err), "could not be read: "+reason.Sentence(err))
	}
	uuid := r.Identity.UUID
	if !d.Driver.Descriptor().Identifies || d.IgnoreUUID || !bmc.UsableUUID(uuid) {
		return refuse(reason.IdentityUnknown, "reports no system UUID by which it could be known again, and Machine "+s.Machine+
			" has no Node: write an entry with machine: "+s.Machine+" and the machine's uuid into hosts.d")
	}
	if why := n.hosts.own.HasUUID(uuid); why != "" { // I13
		return refuse(reason.OwnHost, "is that of this daemon's host: "+why)
	}
	if why := n.view.OtherNodeWithUUID(s.Node, uuid); why != "" { // I9
		return refuse(reason.DuplicateUUID, "reports the system UUID "+uuid+", and "+why)
	}
	return uuid, nil
}

// pinnedMachine is what a pin of a host records about its Machine. The name of an entry for a
// Machine may be used again for another Machine, which may be on another host.
func pinnedMachine(host, machineUID string) string {
	if bmc.IsMachineEntry(host) {
		return machineUID
	}
	return ""
}

// ofOtherMachine reports whether a pin is about a former Machine of the same name.
func ofOtherMachine(p state.Pin, machineUID string) bool {
	return p.MachineUID != "" && machineUID != "" && p.MachineUID != machineUID
}
