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

// claims is what is known about the identity of a host before its devices are
// asked: they must bear it out. // I8
type claims struct {
	node   string    // the Node's system UUID; empty without a Node
	serial string    // the hardware's, where a BareMetalHost tells it
	pin    state.Pin // zero unless it is about the very devices of the host
	report *report   // of the device in question, in that pin; nil if there is none
	manual bool
}

// of is what is known before one device is asked.
func (k claims) of(h bmc.Host, level, device int) claims {
	k.report = recordedReport(k.pin, h, level, device)
	return k
}

// identify compares who answered at a level with whom its host is said to be:
// each device must be the one. // I8
func identify(h bmc.Host, level int, r bmc.Reading, k claims) guard.IdentityVerdict {
	parts := r.Parts
	if len(parts) == 0 {
		parts = []bmc.Reading{r}
	}
	if level < 0 || level >= len(h.Levels) || len(parts) != len(h.Levels[level].Devices) {
		return guard.IdentityUnproven
	}
	all := guard.IdentityMatches
	for i, d := range h.Levels[level].Devices {
		all = worse(all, identifyDevice(h, d, parts[i].Identity, k.of(h, level, i)))
	}
	return all
}

// identifyDevice is identify for one device.
//
// required: the Node's system UUID decides; only without one does a pin.
// pinned: only what a person has vouched for does. off: nothing is compared,
// for manual fences alone. A device that need not tell whose it is, and does, is
// held to it: its address may have moved since it was enrolled. One that was enrolled
// without a UUID must still report what it reported then.
func identifyDevice(h bmc.Host, d bmc.Device, got bmc.Identity, k claims) guard.IdentityVerdict {
	switch {
	case h.IdentityMode == identityOff && k.manual: // a person answers for it
		return guard.IdentityMatches
	case h.IdentityMode == identityOff:
		return guard.IdentityUnproven
	}
	if d.IgnoreUUID {
		got.UUID = ""
	}
	vouched := h.PinnedUUID
	if vouched == "" && k.pin.EnrolledBy != "" {
		vouched = k.pin.SystemUUID
	}
	switch {
	case d.Identifies():
	case contradicts(got.UUID, vouched), contradicts(got.UUID, k.node), otherSerial(got, k):
		return guard.IdentityDiffers
	case d.Enrolled && !bmc.UsableUUID(got.UUID):
		return worse(enrolled(k), k.report.identify(got))
	default:
		return enrolled(k)
	}
	want := k.node
	switch {
	case h.IdentityMode == identityPinned && vouched == "":
		return guard.IdentityNotEnrolled
	case h.IdentityMode == identityPinned:
		want = vouched
	case !bmc.UsableUUID(want) && vouched != "":
		want = vouched
	case !bmc.UsableUUID(want):
		want = k.pin.SystemUUID
	}
	switch {
	case !bmc.UsableUUID(got.UUID):
		return guard.IdentityUnproven
	case contradicts(got.UUID, vouched), otherSerial(got, k):
		return guard.IdentityDiffers
	case !bmc.UsableUUID(want):
		return guard.IdentityUnproven
	case !bmc.UUIDsMatch(got.UUID, want):
		return guard.IdentityDiffers
	}
	return guard.IdentityMatches
}

// contradicts says whether two UUIDs that both name a machine name different ones.
func contradicts(a, b string) bool {
	return bmc.UsableUUID(a) && bmc.UsableUUID(b) && !bmc.UUIDsMatch(a, b)
}

// enrolled is the verdict on a device that need not tell an identity: a person must have
// vouched for it, and for no other machine than the Node's. // I8
func enrolled(k claims) guard.IdentityVerdict {
	switch {
	case k.pin.EnrolledBy == "" || !bmc.UsableUUID(k.pin.SystemUUID),
		bmc.UsableUUID(k.node) && !bmc.UUIDsMatch(k.pin.SystemUUID, k.node):
		return guard.IdentityNotEnrolled
	}
	return guard.IdentityMatches
}

// otherSerial says whether the second factor contradicts: the serial number that
// this very UUID had before, else the one that a BareMetalHost tells. A person
// who enrolled the host has seen the latter. // I8
func otherSerial(got bmc.Identity, k claims) bool {
	if bmc.UUIDsMatch(got.UUID, k.pin.SystemUUID) {
		if match, known := bmc.SerialsMatch(got.Serial, k.pin.Serial); known {
			return !match
		}
	}
	match, known := bmc.SerialsMatch(got.Serial, k.serial)
	return known && !match && k.pin.EnrolledBy == ""
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

// Identify compares who answered at a level with whom the host of a target is said to be.
// manual: a person answers for it. // I8
func (c *Cluster) Identify(ctx context.Context, h bmc.Host, level int, r bmc.Reading, t remediate.Target, manual bool) guard.IdentityVerdict {
	return identify(h, level, r, c.claims(ctx, h, t, manual))
}

// claims gathers what is known about the identity of a target's host.
func (c *Cluster) claims(ctx context.Context, h bmc.Host, t remediate.Target, manual bool) claims {
	k := claims{node: t.SystemUUID, manual: manual}
	if b := c.bareMetalHost(t); b != nil {
		k.serial = b.Serial
	}
	if p, found, err := c.hosts.pins.get(h.Name); err == nil && found && pinnedHere(p, h) {
		k.pin = p
	}
	return k
}

// pinnedHere says whether a pin is about the very devices that the host has now. An
// older record, which lacks part of what chooses them, is enough only where each
// tells whose it is. // I8
func pinnedHere(p state.Pin, h bmc.Host) bool {
	switch {
	case p.Choice != "":
		return p.Devices == devicesOf(h) && p.Choice == choiceOf(h)
	case !allIdentify(h):
		return false
	case p.Devices == "":
		return p.Address == h.Address()
	}
	return p.Devices == devicesOf(h)
}

// allIdentify says whether each device of a host tells whose it is.
func allIdentify(h bmc.Host) bool {
	return !slices.ContainsFunc(h.Levels, func(l bmc.Level) bool {
		return slices.ContainsFunc(l.Devices, func(d bmc.Device) bool { return !d.Identifies() })
	})
}

// devicesOf names every device of a host, one to a line.
func devicesOf(h bmc.Host) string { return strings.Join(h.Keys(), "\n") }

// choiceOf is what chooses the machine behind each device of a host, one to a line.
func choiceOf(h bmc.Host) string {
	var list []string
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			list = append(list, d.Fingerprint())
		}
	}
	return strings.Join(list, "\n")
}
