package hosts

import (
	"context"
	"fmt"
	"slices"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

// isUnidentified reports whether a device of a native driver answered without a UUID
// that identifies its host. Only an enrolment makes it one that is used. // I8
func isUnidentified(d bmc.Device, got bmc.Identity) bool {
	return d.Driver.Descriptor().Identifies && (d.IgnoreUUID || !bmc.UsableUUID(got.UUID))
}

// enrollableWithoutUUID refuses what a host whose devices do not all identify it must
// not be: there twice, as only the other host could tell whose BMC it is; or one whose
// BMC has reported its UUID before, and will again when it is well. // I8, I9
func (c *Cluster) enrollableWithoutUUID(s Subject, old state.Pin, x Enrollment) error {
	if why := c.hosts.catalog.duplicateUnless(names(s.Cluster, s.target()), false); why != "" {
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

// uuidOf is the UUID by which a device is compared with other hosts. One that is to
// be ignored says nothing of them, but that of this host's own BMC counts always. // I13
func (h *Hosts) uuidOf(d bmc.Device, got bmc.Identity) string {
	if d.IgnoreUUID && h.own.HasUUID(got.UUID) == "" {
		return ""
	}
	return got.UUID
}

// reportOf returns what an unidentified device reports. MAC addresses are an
// addition: a device that cannot be described has none.
func (h *Hosts) reportOf(ctx context.Context, d bmc.Device, got bmc.Identity) *report {
	var macs []string
	if p, err := h.opt.Open(d); err == nil {
		if describer, ok := p.(bmc.Describer); ok {
			if t, err := describer.Describe(ctx); err == nil {
				macs = t.MACs
			}
		}
		_ = p.Close(ctx) // a session left behind is the BMC's to time out
	}
	return newReport(got, macs)
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
		c.revoke(ctx, p, k.Subject.Node, fmt.Sprintf("%s reports something else than when it was enrolled: %s; enroll again after checking the device", d, why))
	}
}
