package hosts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// The identity modes of guards.identity.
const (
	identityPinned = "pinned"
	identityOff    = "off"
)

// expectedIdentity is what is known about the identity of a host before its devices are read. The
// devices must match it. // I8
type expectedIdentity struct {
	node   string    // the Node's system UUID; empty without a Node
	serial string    // the hardware's, if a BareMetalHost tells it
	pin    state.Pin // zero unless it is about the very devices of the host; it may be contradicted
	report *report   // of the device in question, in that pin; nil if there is none
	manual bool      // a person ordered the fence and answers for the identity
}

// identify compares the devices that answered at a level with the host's expected identity. Each
// device must match. // I8
func identify(h bmc.Host, level int, r bmc.Reading, want expectedIdentity) guard.IdentityVerdict {
	parts := r.Parts
	if len(parts) == 0 {
		parts = []bmc.Reading{r}
	}
	if level < 0 || level >= len(h.Levels) || len(parts) != len(h.Levels[level].Devices) {
		return guard.IdentityUnproven
	}
	all := guard.IdentityMatches
	for i, d := range h.Levels[level].Devices {
		want.report = recordedReport(want.pin, h, level, i)
		all = worse(all, identifyDevice(h, d, parts[i].Identity, want))
	}
	return all
}

// identifyDevice is identify for one device, by the host's identity mode:
//   - required: the Node's system UUID decides. A pin decides only if there is no Node.
//   - pinned: only a UUID that a person wrote down or enrolled decides. The Node must not have another.
//   - off: nothing is compared. This is for manual fences only.
//
// Without a Node nothing decides if the Node was seen on another machine since: neither the pin, nor
// what a person enrolled or wrote down. What contradicts the identity still does.
//
// If a device that need not report an identity does report one, it must match: the address may
// have moved since a person enrolled the device. A device that was enrolled without a UUID must
// still report what it reported then.
func identifyDevice(h bmc.Host, d bmc.Device, got bmc.Identity, want expectedIdentity) guard.IdentityVerdict {
	switch {
	case h.IdentityMode == identityOff && want.manual:
		return guard.IdentityMatches
	case h.IdentityMode == identityOff:
		return guard.IdentityUnproven
	}
	if d.IgnoreUUID {
		got.UUID = ""
	}
	confirmed := h.PinnedUUID
	if confirmed == "" && want.pin.EnrolledBy != "" {
		confirmed = want.pin.SystemUUID
	}
	switch {
	case d.Identifies():
	case contradicts(got.UUID, confirmed), contradicts(got.UUID, want.node), otherSerial(got, want):
		return guard.IdentityDiffers
	case d.Enrolled && !bmc.UsableUUID(got.UUID):
		return worse(enrolledVerdict(want), want.report.identify(got))
	default:
		return enrolledVerdict(want)
	}
	uuid, void := want.node, want.pin.Contradicted != ""
	switch {
	case h.IdentityMode == identityPinned && (confirmed == "" || h.PinnedUUID == "" && void):
		return guard.IdentityNotEnrolled
	case h.IdentityMode == identityPinned && contradicts(uuid, confirmed): // the Node is on another machine than the BMC
		return guard.IdentityDiffers
	case !bmc.UsableUUID(uuid) && void:
		uuid = ""
	case h.IdentityMode == identityPinned:
		uuid = confirmed
	case !bmc.UsableUUID(uuid) && confirmed != "":
		uuid = confirmed
	case !bmc.UsableUUID(uuid):
		uuid = want.pin.SystemUUID
	}
	switch {
	case !bmc.UsableUUID(got.UUID):
		return guard.IdentityUnproven
	case contradicts(got.UUID, confirmed), otherSerial(got, want):
		return guard.IdentityDiffers
	case !bmc.UsableUUID(uuid):
		return guard.IdentityUnproven
	case !bmc.UUIDsMatch(got.UUID, uuid):
		return guard.IdentityDiffers
	}
	return guard.IdentityMatches
}

// contradicts reports whether two UUIDs both name a machine, and not the same one.
func contradicts(a, b string) bool {
	return bmc.UsableUUID(a) && bmc.UsableUUID(b) && !bmc.UUIDsMatch(a, b)
}

// enrolledVerdict is the verdict on a device that cannot prove its identity. A person must have
// enrolled it, and for no other machine than the Node's. // I8
func enrolledVerdict(want expectedIdentity) guard.IdentityVerdict {
	switch {
	case want.pin.EnrolledBy == "" || !bmc.UsableUUID(want.pin.SystemUUID) || want.pin.Contradicted != "",
		bmc.UsableUUID(want.node) && !bmc.UUIDsMatch(want.pin.SystemUUID, want.node):
		return guard.IdentityNotEnrolled
	}
	return guard.IdentityMatches
}

// otherSerial reports whether the serial number contradicts the identity. It is compared with the
// one that this UUID had before, or else with the one that a BareMetalHost tells. A person who
// enrolled the host has seen the latter. // I8
func otherSerial(got bmc.Identity, want expectedIdentity) bool {
	if bmc.UUIDsMatch(got.UUID, want.pin.SystemUUID) {
		if match, known := bmc.SerialsMatch(got.Serial, want.pin.Serial); known {
			return !match
		}
	}
	match, known := bmc.SerialsMatch(got.Serial, want.serial)
	return known && !match && want.pin.EnrolledBy == ""
}

// worse is the verdict on two devices of one host.
func worse(a, b guard.IdentityVerdict) guard.IdentityVerdict {
	for _, v := range []guard.IdentityVerdict{guard.IdentityDiffers, guard.IdentityUnproven, guard.IdentityNotEnrolled} {
		if a == v || b == v {
			return v
		}
	}
	return guard.IdentityMatches
}

// Identify compares the devices that answered at a level with the expected identity of a target's
// host. manual means that a person ordered the fence and answers for the identity. // I8
func (c *Cluster) Identify(_ context.Context, h bmc.Host, level int, r bmc.Reading, t remediate.Target, manual bool) guard.IdentityVerdict {
	want := c.expected(h, t, manual)
	verdict := identify(h, level, r, want)
	if verdict == guard.IdentityUnproven && t.ByHardware && c.nodeless.hardwareCounts(h, t, want) {
		return c.nodeless.stillSame(r.Identity, t)
	}
	return verdict
}

// expected is what the identity of a target's host must match.
func (c *Cluster) expected(h bmc.Host, t remediate.Target, manual bool) expectedIdentity {
	want := expectedIdentity{node: t.SystemUUID, manual: manual}
	if b := bareMetalHost(c.opt.View, t); b != nil {
		want.serial = b.Serial
	}
	p, found, err := c.hosts.catalog.pins.get(h.Name)
	if err == nil && found && pinnedHere(p, h) && (t.NodeUID != "" || !ofOtherMachine(p, t.MachineUID)) {
		want.pin = p
	}
	return want
}

// devicesOf names every device of a host, one on each line.
func devicesOf(h bmc.Host) string { return strings.Join(h.Keys(), "\n") }

// choiceOf is what chooses the machine behind each device of a host, one on each line.
func choiceOf(h bmc.Host) string {
	var list []string
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			list = append(list, d.Fingerprint())
		}
	}
	return strings.Join(list, "\n")
}

// A Machine without a Node has no system UUID with which the BMC could be compared. If nothing is
// pinned or enrolled either, its BareMetalHost identifies the BMC, if all of these agree: // I8
//
//   - The Machine names the BareMetalHost, and the BareMetalHost names the Machine and runs it.
//   - The BMC reports the serial number or the MAC addresses that the inspection found, and no other
//     BareMetalHost has them.
//   - The machine that answers was pinned nowhere else.
//
// The rules of metalTrust come first, as for each BareMetalHost.

// Identification is what the first reading of a target's BMC shows.
type Identification struct {
	Verdict guard.IdentityVerdict
	// Why explains an unproven identity of a target without a Node, and says what to do.
	Why string
	// ByHardware: only the hardware of the BareMetalHost identifies the BMC.
	ByHardware bool
	// ReportedUUID is the system UUID that the BMC of a target without a Node, or whose Node tells none, reports;
	// "" if it reports none that counts.
	ReportedUUID string
}

// nodeless identifies the BMCs of one cluster's Machines that have no Node.
type nodeless struct {
	cluster string
	view    View
	hosts   *Hosts
	metal   *metalTrust
}

// IdentifyNew is Identify for a target whose run is to start. If the target has no Node, it may ask
// the BMC for its hardware.
func (c *Cluster) IdentifyNew(ctx context.Context, h bmc.Host, level int, r bmc.Reading, t remediate.Target, manual bool) Identification {
	want := c.expected(h, t, manual)
	x := Identification{Verdict: identify(h, level, r, want)}
	switch {
	case x.Verdict == guard.IdentityMatches && t.SystemUUID == "": // also of a Node that tells none: it may have been made from Git
		x.ReportedUUID = reportedUUID(h, level, r)
	case t.NodeUID != "" || t.Machine == "" || x.Verdict == guard.IdentityMatches:
	case c.nodeless.hardwareCounts(h, t, want):
		found, why := c.nodeless.identifyHardware(ctx, h, r, t)
		if x.Verdict == guard.IdentityUnproven { // nothing here undoes a contradiction
			x = found
		}
		x.Why = c.nodeless.explain(h, t, why)
	case x.Verdict == guard.IdentityDiffers:
		x.Why = c.nodeless.explain(h, t, fmt.Sprintf("it reports the system UUID %q and the serial number %q, and others are pinned or written down",
			r.Identity.UUID, r.Identity.Serial))
	case x.Verdict == guard.IdentityUnproven:
		x.Why = c.nodeless.explain(h, t, cmp.Or(want.pin.Contradicted, "nothing is pinned or enrolled that it could be compared with"))
	}
	return x
}

// explain returns the reason why the BMC of a target without a Node is not identified, and what to do.
func (n *nodeless) explain(h bmc.Host, t remediate.Target, why string) string {
	action := "check which machine answers there, then run fencectl bmc enroll --machine " + t.MachineKey()
	if !n.metal.isMetal(h, t) {
		action += ", or write its uuid into " + h.Source
	}
	return fmt.Sprintf("Machine %s has no Node, and nothing proves that %s is the BMC of its machine: %s; %s", t.MachineKey(), h.Address(), why, action)
}

// hardwareCounts reports whether the hardware of a BareMetalHost may identify the BMC of a target:
// there is no Node, and nothing better is known.
func (n *nodeless) hardwareCounts(h bmc.Host, t remediate.Target, want expectedIdentity) bool {
	known := bmc.UsableUUID(want.node) || h.PinnedUUID != "" || bmc.UsableUUID(want.pin.SystemUUID)
	compares := h.IdentityMode != identityPinned && h.IdentityMode != identityOff
	return t.NodeUID == "" && t.Machine != "" && n.metal.isMetal(h, t) && !known && compares
}

// identifyHardware compares the hardware that the BMC reports with the inspection of the
// BareMetalHost. why explains the verdict.
func (n *nodeless) identifyHardware(ctx context.Context, h bmc.Host, r bmc.Reading, t remediate.Target) (x Identification, why string) {
	x.Verdict = guard.IdentityUnproven
	if why := n.unlinked(t); why != "" {
		return x, why
	}
	if why := n.hosts.catalog.sameHardware(names(n.cluster, t)); why != "" {
		return x, why
	}
	if other, found := n.hosts.catalog.pins.underAnotherName(h, r.Identity.UUID); found {
		x.Verdict = guard.IdentityDiffers
		return x, "the machine that answers was pinned at " + other.Address + " (" + other.Host + ")"
	}
	b, d := bareMetalHost(n.view, t), h.Levels[0].Devices[0]
	reported, err := n.hosts.readHardware(ctx, d, r.Identity)
	if err != nil {
		return x, "its hardware cannot be read: " + reason.Sentence(err)
	}
	same, differs, why := bmc.SameHardware(bmc.Hardware{Serial: b.Serial, MACs: b.NICs}, reported)
	switch uuid := reportedUUID(h, 0, r); {
	case differs:
		x.Verdict = guard.IdentityDiffers
	case !same:
	case uuid == "" && identifySerial(r.Identity, b) != guard.IdentityMatches: // later readings must show that it is still this machine
		why = "it reports neither a system UUID nor a serial number with each reading"
	default:
		x.Verdict, x.ByHardware, x.ReportedUUID = guard.IdentityMatches, true, uuid
	}
	return x, why
}

func (h *Hosts) readHardware(ctx context.Context, d bmc.Device, got bmc.Identity) (bmc.Hardware, error) {
	reported := bmc.Hardware{Serial: got.Serial}
	description, err := h.describe(ctx, d)
	if err != nil {
		return reported, err
	}
	if match, known := bmc.SerialsMatch(description.Serial, got.Serial); known && !match {
		return reported, fmt.Errorf("%s reported the serial number %q and then %q", d, got.Serial, description.Serial)
	}
	if !bmc.UsableSerial(reported.Serial) {
		reported.Serial = description.Serial
	}
	reported.MACs, reported.SomeMACs = description.MACs, description.SomeMACs
	return reported, nil
}

// describe asks a device what it is. The description is empty if its driver has none.
func (h *Hosts) describe(ctx context.Context, d bmc.Device) (bmc.Description, error) {
	p, err := h.opt.Open(d)
	if err != nil {
		return bmc.Description{}, err
	}
	defer func() { _ = p.Close(ctx) }() // a session left behind is the BMC's to time out
	if describer, ok := p.(bmc.Describer); ok {
		return describer.Describe(ctx)
	}
	return bmc.Description{}, nil
}

// stillSame compares a reading of an open run with what the BMC reported when its hardware
// identified it. It asks the BMC nothing more.
func (n *nodeless) stillSame(got bmc.Identity, t remediate.Target) guard.IdentityVerdict {
	b := bareMetalHost(n.view, t)
	switch {
	case contradicts(got.UUID, t.ReportedUUID):
		return guard.IdentityDiffers
	case b == nil || n.unlinked(t) != "":
		return guard.IdentityUnproven
	case bmc.UUIDsMatch(got.UUID, t.ReportedUUID):
		return guard.IdentityMatches
	case bmc.UsableUUID(t.ReportedUUID):
		return guard.IdentityUnproven
	}
	return identifySerial(got, b)
}

// identifySerial compares the serial number of a reading with that of a BareMetalHost.
func identifySerial(got bmc.Identity, b *policy.Host) guard.IdentityVerdict {
	match, known := bmc.SerialsMatch(got.Serial, b.Serial)
	switch {
	case !known:
		return guard.IdentityUnproven
	case !match:
		return guard.IdentityDiffers
	}
	return guard.IdentityMatches
}

// unlinked returns why the Machine and the BareMetalHost of a target do not belong together, as the
// watch shows them; "" if they do.
func (n *nodeless) unlinked(t remediate.Target) string {
	m, b := n.view.MachineOf(t), bareMetalHost(n.view, t)
	switch {
	case m == nil:
		return "Machine " + t.MachineKey() + " is gone or was replaced"
	case b == nil:
		return "BareMetalHost " + t.BareMetalHost + " is gone"
	}
	return policy.NotLinked(m, b)
}

// reportedUUID is the system UUID that the first device of a level which identifies its host
// reports; "" if none does.
func reportedUUID(h bmc.Host, level int, r bmc.Reading) string {
	parts := r.Parts
	if len(parts) == 0 {
		parts = []bmc.Reading{r}
	}
	for i, d := range h.Levels[level].Devices {
		if i < len(parts) && d.Identifies() && bmc.UsableUUID(parts[i].Identity.UUID) {
			return parts[i].Identity.UUID
		}
	}
	return ""
}

// maxReportedMACs limits the MAC addresses in a record.
const maxReportedMACs = 16

// report is what a device of a native driver reported when a person enrolled it, if
// its UUID identifies no host: OpenBMC as it comes, Cray EX, virtualbmc. A change
// ends the enrolment. All fields may be empty: then only the address and the person's
// confirmation remain, as for an outlet. // I8
type report struct {
	System string   `json:"system,omitempty"` // path of a Redfish system
	Serial string   `json:"serial,omitempty"` // only if it can identify a machine
	MACs   []string `json:"macs,omitempty"`   // of the host, lower case with colons
}

func newReport(id bmc.Identity, macs []string) *report {
	r := &report{System: id.System, MACs: macs[:min(len(macs), maxReportedMACs)]}
	if bmc.UsableSerial(id.Serial) {
		r.Serial = id.Serial
	}
	return r
}

// isUnidentified reports whether a device of a native driver answered without a UUID
// that identifies its host. Only an enrolment makes it one that is used. // I8
func isUnidentified(d bmc.Device, got bmc.Identity) bool {
	return d.Driver.Descriptor().Identifies && (d.IgnoreUUID || !bmc.UsableUUID(got.UUID))
}

// enrollableWithoutUUID refuses what a host whose devices do not all identify it must
// not be: there twice, as only the other host could tell whose BMC it is; or one whose
// BMC has reported its UUID before, and will again when it is well. // I8, I9
func (c *Cluster) enrollableWithoutUUID(s Subject, old state.Pin, x Enrollment) error {
	if why := c.hosts.catalog.duplicateToEnroll(&s, false); why != "" {
		return &reason.Refusal{Reason: reason.DuplicateHost, Message: why}
	}
	if !bmc.UsableUUID(old.BMCUUID) || !pinnedHere(old, s.Host) {
		return nil
	}
	if slices.ContainsFunc(x.Devices, func(d EnrolledDevice) bool { return bmc.UUIDsMatch(d.UUID, old.BMCUUID) }) {
		return nil
	}
	return &reason.Refusal{Reason: reason.IdentityUnknown, Message: s.Host.Address() + " reported the UUID " + old.BMCUUID +
		" before and reports none now; reset the BMC, or set ignoreUUID in hosts.d if it will never report it again"}
}

// reportOf returns what an unidentified device reports. MAC addresses are an
// addition: a device that cannot be described has none.
func (h *Hosts) reportOf(ctx context.Context, d bmc.Device, got bmc.Identity) *report {
	description, err := h.describe(ctx, d)
	if err != nil {
		return newReport(got, nil)
	}
	return newReport(got, description.MACs)
}

// encodeReports is the Reported of a pin: one line for each device, empty for one
// that identifies its host. It is empty if all of them do.
func encodeReports(devices []EnrolledDevice) string {
	lines := make([]string, len(devices))
	for i, d := range devices {
		if d.report != nil {
			b, _ := json.Marshal(d.report) // texts always marshal
			lines[i] = string(b)
		}
	}
	if all := strings.Join(lines, "\n"); strings.Trim(all, "\n") != "" {
		return all
	}
	return ""
}

// recordedReport returns what a device reported when it was enrolled; nil if it
// identified its host. The pin must be about the devices of the host.
func recordedReport(p state.Pin, h bmc.Host, level, device int) *report {
	at := device
	for _, l := range h.Levels[:level] {
		at += len(l.Devices)
	}
	lines := strings.Split(p.Reported, "\n")
	if at >= len(lines) || lines[at] == "" {
		return nil
	}
	var r report
	if json.Unmarshal([]byte(lines[at]), &r) != nil {
		return &report{System: "a record that cannot be read"} // which no device reports
	}
	return &r
}

// withEnrolled marks the devices that were enrolled without a UUID: everything that
// depends on the assurance of a device sees it there.
func (c *Cluster) withEnrolled(h bmc.Host) bmc.Host {
	p, found, err := c.hosts.catalog.pins.get(h.Name)
	if err != nil || !found || p.Reported == "" || !pinnedHere(p, h) {
		return h
	}
	return withDevices(h, func(d *bmc.Device, level, device int) { d.Enrolled = recordedReport(p, h, level, device) != nil })
}

// identify compares what the device reports now with what it reported then. What it
// does not report this time is not proven.
func (r *report) identify(got bmc.Identity) guard.IdentityVerdict {
	switch {
	case r == nil: // it identified its host then
		return guard.IdentityUnproven
	case r.change(got, nil) != "":
		return guard.IdentityDiffers
	case r.Serial != "" && !bmc.UsableSerial(got.Serial):
		return guard.IdentityUnproven
	}
	return guard.IdentityMatches
}

// change says what the device reports otherwise than when it was enrolled; "" if
// nothing. macs are those of its description, empty if there is none.
func (r *report) change(got bmc.Identity, macs []string) string {
	sameSerial, bothSerials := bmc.SerialsMatch(r.Serial, got.Serial)
	sameMAC, bothMACs := bmc.MACsMatch(r.MACs, macs)
	switch {
	case r.System != got.System:
		return fmt.Sprintf("the system was %q and is %q", r.System, got.System)
	case bothSerials && !sameSerial:
		return fmt.Sprintf("the serial number was %q and is %q", r.Serial, got.Serial)
	case r.Serial == "" && bmc.UsableSerial(got.Serial):
		return fmt.Sprintf("there was no serial number, and now it is %q", got.Serial)
	case bothMACs && !sameMAC:
		return fmt.Sprintf("the MAC addresses were %s and are %s", strings.Join(r.MACs, ", "), strings.Join(macs, ", "))
	}
	return ""
}

// uuidOf is the UUID by which a device is compared with other hosts. One that is to
// be ignored says nothing of them, but that of this host's own BMC counts always. // I13
func (h *Hosts) uuidOf(d bmc.Device, got bmc.Identity) string {
	if d.IgnoreUUID && h.own.HasUUID(got.UUID) == "" {
		return ""
	}
	return got.UUID
}

// endIfChanged ends the enrolment of a device that cannot prove its identity and reports
// another machine's, or something else than what it was enrolled by: another machine has
// its address, or it was rebuilt. // I8
func (c *Cluster) endIfChanged(ctx context.Context, k Checked, d bmc.Device) {
	h := k.Subject.Host
	if d.Identifies() || k.Err != nil {
		return
	}
	p, found, err := c.hosts.catalog.pins.get(h.Name)
	if err != nil || !found || p.EnrolledBy == "" || !pinnedHere(p, h) {
		return
	}
	r, got := recordedReport(p, h, k.Level, k.Device), k.Reading.Identity
	if d.IgnoreUUID {
		got.UUID = ""
	}
	why := ""
	switch {
	case contradicts(got.UUID, p.SystemUUID):
		why = "it now reports the UUID " + got.UUID
	case r == nil, bmc.UsableUUID(got.UUID): // by which it is known
		return
	default:
		why = r.change(got, k.Description.MACs)
	}
	if why != "" {
		c.pins.revokeChecked(ctx, p, k.Subject.Node, fmt.Sprintf("%s reports something else than when it was enrolled: %s; enroll again after checking the device", d, why))
	}
}
