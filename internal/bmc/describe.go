package bmc

import (
	"context"
	"strings"
	"time"
)

// Describer is a Power that can report more than the power state. The BMC health
// check, people, and the probe of a host without a Node use it, a run never does.
type Describer interface {
	// Describe only reads. What the BMC does not report stays empty.
	Describe(ctx context.Context) (Description, error)
}

// Auditor is a Power that can look for weaknesses of its BMC. It changes nothing
// there and never guesses passwords, because BMCs lock accounts.
type Auditor interface {
	Audit(ctx context.Context) ([]Finding, error)
}

// Description is what a BMC reports about itself and its host. All texts are
// limited in length and printable; zero values mean "not reported".
type Description struct {
	Manufacturer string // of the BMC or the system
	Model        string
	Firmware     string
	Serial       string   // of the host
	MACs         []string // of the host's network interfaces, lower case with colons
	SomeMACs     bool     // MACs are not all: some interfaces could not be read, or are too many
	// RestorePolicy is what the host does when mains power returns: "always-on",
	// "previous" or "always-off".
	RestorePolicy string
	// Clock is the BMC's own time, ClockAt the time at which it was read.
	Clock, ClockAt time.Time
	// PowerEvents are the newest entries about power in the BMC's log, oldest
	// first, at most 8.
	PowerEvents []PowerEvent
	// CertificateUntil is the end of validity of the BMC's TLS certificate.
	CertificateUntil time.Time
}

// PowerEvent is one entry of a BMC's log. It may support a conclusion; it proves
// nothing.
type PowerEvent struct {
	At   time.Time // by the BMC's clock; zero if it has none
	Text string
}

// Class is the BMC's model and firmware; "" if the model is not known. All BMCs
// of a class may report a false Off. // I5
func (d Description) Class() string {
	if d.Model == "" {
		return ""
	}
	return strings.ToLower(strings.Join(strings.Fields(d.Manufacturer+" "+d.Model+" "+d.Firmware), " "))
}

// FindingCode is the stable name of a weakness.
type FindingCode string

// The findings. docs/reasons.md has one row for each.
const (
	FindingCipherZero         FindingCode = "CipherZero"         // IPMI suite 0 accepted: no password needed
	FindingNullUser           FindingCode = "NullUser"           // an account with an empty user name is enabled
	FindingDefaultPassword    FindingCode = "DefaultPassword"    // the configured password is a vendor's factory password
	FindingCertificateExpired FindingCode = "CertificateExpired" // or ends within 30 days
	FindingCertificateTrust   FindingCode = "CertificateTrust"   // neither verified nor pinned, or plain http
	FindingClock              FindingCode = "Clock"              // the BMC's clock differs by more than 5 minutes
	FindingRestorePolicy      FindingCode = "RestorePolicy"      // the host starts by itself when mains power returns
	FindingLowerAssurance     FindingCode = "LowerAssurance"     // the driver cannot refuse forged answers
	FindingNotEnrolled        FindingCode = "NotEnrolled"        // the device reports no identity and was not enrolled
	FindingIdentity           FindingCode = "Identity"           // another machine answers, or its identity is not known
	FindingDuplicate          FindingCode = "Duplicate"          // two entries lead to one machine
	FindingSameMACs           FindingCode = "SameMACs"           // another host has one of its MAC addresses
)

// Finding is one weakness, for people.
type Finding struct {
	Code    FindingCode
	Message string // what is wrong and how to correct it
}
