package hosts

import (
	"context"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
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

// of is what is known before one device is read.
func (want expectedIdentity) of(h bmc.Host, level, device int) expectedIdentity {
	want.report = recordedReport(want.pin, h, level, device)
	return want
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
		all = worse(all, identifyDevice(h, d, parts[i].Identity, want.of(h, level, i)))
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
	serial := ""
	if b := c.bareMetalHost(t); b != nil {
		serial = b.Serial
	}
	want := c.hosts.catalog.expected(h, t.SystemUUID, serial, manual)
	if t.NodeUID == "" && ofOtherMachine(want.pin, t.MachineUID) {
		want.pin = state.Pin{}
	}
	return want
}

// allIdentify reports whether each device of a host proves its identity.
func allIdentify(h bmc.Host) bool {
	return !slices.ContainsFunc(h.Levels, func(l bmc.Level) bool {
		return slices.ContainsFunc(l.Devices, func(d bmc.Device) bool { return !d.Identifies() })
	})
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
