package bmc

import (
	"context"
	"strings"
	"time"
)

// Describer is a Power that can tell what answers there, beyond the power
// state. It is asked by the sweep and by people, never by a run.
type Describer interface {
	// Describe reads only. What the BMC does not tell stays empty.
	Describe(ctx context.Context) (Description, error)
}

// Auditor is a Power that can look for weaknesses of its BMC. It changes
// nothing there and never guesses passwords: BMCs lock accounts.
type Auditor interface {
	Audit(ctx context.Context) ([]Finding, error)
}

// Description is what a BMC tells about itself and its host. All texts are
// bounded and printable; zero values mean "not told".
type Description struct {
	Manufacturer string // of the BMC or the system
	Model        string
	Firmware     string
	Serial       string   // of the host
	MACs         []string // of the host's network interfaces, lower case with colons
	// RestorePolicy is what the host does when mains power returns: "always-on",
	// "previous" or "always-off".
	RestorePolicy string
	// Clock is the BMC's own time, and ClockAt when it was read.
	Clock, ClockAt time.Time
	// PowerEvents are the newest entries about power in the BMC's log, oldest
	// first, at most 8.
	PowerEvents []PowerEvent
	// CertificateUntil is the end of the certificate that the BMC showed.
	CertificateUntil time.Time
}

// PowerEvent is one entry of a BMC's log. It corroborates; it proves nothing.
type PowerEvent struct {
	At   time.Time // by the BMC's clock; zero when it has none
	Text string
}

// Class names the BMC's model and firmware, which lie together or not at all;
// "" when the model is not known. // I5
func (d Description) Class() string {
	if d.Model == "" {
		return ""
	}
	return strings.ToLower(strings.Join(strings.Fields(d.Manufacturer+" "+d.Model+" "+d.Firmware), " "))
}

// FindingCode is a stable name for a weakness.
type FindingCode string

// The findings. docs/reasons.md has one row for each.
const (
	FindingCipherZero         FindingCode = "CipherZero"         // IPMI suite 0 accepted: no password needed
	FindingNullUser           FindingCode = "NullUser"           // an account without a name is enabled
	FindingDefaultPassword    FindingCode = "DefaultPassword"    // the configured password is a vendor's
	FindingCertificateExpired FindingCode = "CertificateExpired" // or ends within 30 days
	FindingCertificateTrust   FindingCode = "CertificateTrust"   // neither verified nor pinned, or plain http
	FindingClock              FindingCode = "Clock"              // the BMC's clock is off by more than 5 minutes
	FindingRestorePolicy      FindingCode = "RestorePolicy"      // mains power switches the host on by itself
	FindingLowerAssurance     FindingCode = "LowerAssurance"     // the driver cannot refuse forged answers
	FindingNotEnrolled        FindingCode = "NotEnrolled"        // the device tells no identity and was not enrolled
	FindingIdentity           FindingCode = "Identity"           // another machine answers, or one that cannot be told
	FindingDuplicate          FindingCode = "Duplicate"          // two entries lead to one machine
	FindingSameMACs           FindingCode = "SameMACs"           // another host has one of its MAC addresses
)

// Finding is one weakness, for people.
type Finding struct {
	Code    FindingCode
	Message string // what is wrong and what mends it
}
