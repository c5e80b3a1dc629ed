package hosts

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

// Enrollment is what a person vouched for, or would with DryRun.
type Enrollment struct {
	Pin     state.Pin
	Devices []EnrolledDevice // the levels in order
}

// EnrolledDevice is one device of an enrolled host and what it said.
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

// Enroll stores a person's word that the devices of a Node's host, as they are
// now, switch that very machine. Each is read at once: what tells an identity must
// match, and what tells one unasked may not contradict. A refusal is a *Refusal. // I8, I10
func (c *Cluster) Enroll(ctx context.Context, o order.Order) (Enrollment, error) {
	h := c.hosts
	if err := c.opt.Lead.Refuse(); err != nil {
		return Enrollment{}, err
	}
	if !c.opt.View.Seen() {
		return Enrollment{}, errNotSeen()
	}
	t, _ := c.opt.View.TargetOn(o.Node)
	s, err := c.SubjectOf(ctx, o.Node)
	if err == nil {
		s.Host, err = c.FindBare(ctx, t)
	}
	if err == nil {
		err = cmp.Or(s.Err, c.enrollable(s))
	}
	if err != nil {
		return Enrollment{}, err
	}
	s.Host = withSecrets(ctx, s.Host, c.credentials) // those of now
	h.opt.LockOut.Forget(s.Host)                     // the person may have mended them
	old, _, err := h.pins.get(s.Host.Name)
	if err != nil {
		return Enrollment{}, fmt.Errorf("read the pin of %s: %w", s.Host.Name, err)
	}
	x := Enrollment{Pin: state.Pin{
		Host: s.Host.Name, Version: old.Version, Node: s.Node, Address: s.Host.Address(), Devices: devicesOf(s.Host), Choice: choiceOf(s.Host),
		Secret:     strings.Join(secretsOf(c.opt.Name, s.Host), "\n"),
		SystemUUID: machineUUID(s), Class: h.index.class(s.Host.Name), At: time.Now().UTC(), EnrolledBy: o.Actor,
	}}
	for i, l := range s.Host.Levels {
		for j := range l.Devices {
			d, err := c.enrollDevice(ctx, s, i, j)
			if err != nil {
				return Enrollment{}, err
			}
			if x.Devices = append(x.Devices, d); x.Pin.BMCUUID == "" {
				x.Pin.BMCUUID, x.Pin.Serial = d.UUID, d.Serial
			}
		}
	}
	if x.Pin.Reported = encodeReports(x.Devices); x.Pin.Reported != "" {
		if err := c.enrollableWithoutUUID(s, old, x); err != nil {
			return Enrollment{}, err
		}
	}
	if o.DryRun {
		return x, nil
	}
	if x.Pin, err = c.putPin(ctx, x.Pin); err != nil {
		return Enrollment{}, err
	}
	c.emit(o.Event("enrolls " + s.Host.Address()))
	c.opt.View.Wake()
	return x, nil
}

// enrollable refuses a subject of which nobody can say which machine it is, or
// that is there twice.
func (c *Cluster) enrollable(s Subject) error {
	if !bmc.UsableUUID(machineUUID(s)) {
		return &reason.Refusal{Reason: reason.IdentityUnknown,
			Message: "Node " + s.Node + " shows no system UUID, and none is pinned in hosts.d; there is nothing to enroll for"}
	}
	if c.ofMetal(s.Host, s.target()) {
		if r := c.misplaced(s.Host); r != nil {
			return r
		}
	}
	// A person may vouch for this one against another that is unknown; not where only that
	// other could tell whose BMC it is.
	if why := c.hosts.twinOf(names(s.Cluster, s.Node, s.BareMetalHost), allIdentify(s.Host)); why != "" {
		return &reason.Refusal{Reason: reason.DuplicateHost, Message: why}
	}
	return nil
}

// machineUUID is whose host a subject is: the Node's system UUID, else the one
// that an administrator wrote down.
func machineUUID(s Subject) string {
	if bmc.UsableUUID(s.SystemUUID) {
		return s.SystemUUID
	}
	return s.Host.PinnedUUID
}

// enrollDevice reads one device and holds it against the machine.
func (c *Cluster) enrollDevice(ctx context.Context, s Subject, level, device int) (EnrolledDevice, error) {
	d := s.Host.Levels[level].Devices[device]
	r, err := c.readOnce(ctx, d)
	if err != nil {
		return EnrolledDevice{}, &reason.Refusal{Reason: ReasonOf(err), Message: d.String() + " could not be read: " + reason.Sentence(err)}
	}
	h := s.Host
	if h.IdentityMode != identityPinned || h.PinnedUUID == "" {
		h.IdentityMode = "" // compared with the machine, whatever is asked later
	}
	if why := c.hosts.own.HasUUID(r.Identity.UUID); why != "" && d.IgnoreUUID { // I13
		return EnrolledDevice{}, &reason.Refusal{Reason: reason.OwnHost, Message: d.String() + ": " + why}
	}
	d.Enrolled = isUnidentified(d, r.Identity)
	x := EnrolledDevice{
		Level: level, Device: d.String(), Driver: d.Driver, Power: r.State, UUID: r.Identity.UUID, Serial: r.Identity.Serial,
		Identity: identifyDevice(h, d, r.Identity, claims{node: machineUUID(s)}), System: r.Identity.System, Assurance: d.Assurance(),
	}
	if d.Enrolled {
		x.report = c.reportOf(ctx, d, r.Identity)
		x.Serial, x.MACs = x.report.Serial, x.report.MACs
	}
	if d.IgnoreUUID || !bmc.UsableUUID(x.UUID) {
		x.UUID = "" // tells nobody anything
	}
	if x.Identity != guard.IdentityMatches && (d.Identifies() || x.Identity == guard.IdentityDiffers) {
		return x, &reason.Refusal{Reason: refusedIdentity(x.Identity),
			Message: fmt.Sprintf("%s says it is %q, and %s is %q", d, r.Identity.UUID, s.Node, machineUUID(s))}
	}
	return x, seenOn(s, d, r)
}

// seenOn refuses a device that reads Off while its Node is Ready. One that tells no
// identity must have been seen to read On: agents call off what is not there. // I1, I8
func seenOn(s Subject, d bmc.Device, r bmc.Reading) error {
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

// readOnce opens a device, reads it, and ends its session.
func (c *Cluster) readOnce(ctx context.Context, d bmc.Device) (bmc.Reading, error) {
	one := bmc.Host{Name: d.String(), Levels: []bmc.Level{{Devices: []bmc.Device{d}}}}
	s, err := power.Open(c.hosts.opt.Open, one, 0, c.hosts.opt.Timing)
	if err != nil {
		return bmc.Reading{}, err
	}
	defer s.Close(ctx)
	return s.Read(ctx)
}

// Unfreeze ends the freeze of a Node's host, on the order of a person who knows why its BMC
// said Off falsely. Outcome.Still says why it must not be switched off all the same. // I5
func (c *Cluster) Unfreeze(ctx context.Context, o order.Order) (order.Outcome, error) {
	if err := c.opt.Lead.Refuse(); err != nil {
		return order.Outcome{}, err
	}
	node := o.Node
	released, err := c.hosts.freezes.release(ctx, c.opt.Lead.Store(), o, c.opt.Name)
	for _, f := range released {
		o.Node, o.Run = f.Node, f.RunID
		c.emit(o.Event("releases " + f.Host))
	}
	if err == nil && len(released) == 0 {
		return order.Outcome{}, &reason.Refusal{Reason: reason.NotFrozen, Message: "no freeze stands on " + o.Node}
	}
	c.hosts.wakeAll()
	if err != nil {
		return order.Outcome{}, err
	}
	t, _ := c.opt.View.TargetOn(node)
	_, why := c.Frozen(t)
	return order.Outcome{Still: why}, nil
}
