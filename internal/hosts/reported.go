package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

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
	levels := make([]bmc.Level, len(h.Levels))
	for i, l := range h.Levels {
		levels[i].Devices = slices.Clone(l.Devices)
		for j := range levels[i].Devices {
			levels[i].Devices[j].Enrolled = recordedReport(p, h, i, j) != nil
		}
	}
	h.Levels = levels
	return h
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
		c.revoke(ctx, p, k.Subject.Node, fmt.Sprintf("%s reports something else than when it was enrolled: %s; enroll again after checking the device", d, why))
	}
}
