package sweep

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
)

const (
	clockTolerance    = 5 * time.Minute
	certificateNotice = 30 * 24 * time.Hour
)

// weaknesses returns all known weaknesses of a device: those of its last audit,
// and those that the sweep finds itself. Each code occurs once.
func (e *entry) weaknesses(now time.Time) []bmc.Finding {
	all := slices.Clone(e.findings)
	add := func(code bmc.FindingCode, format string, args ...any) {
		if !slices.ContainsFunc(all, func(f bmc.Finding) bool { return f.Code == code }) {
			all = append(all, bmc.Finding{Code: code, Message: fmt.Sprintf(format, args...)})
		}
	}
	if e.last.Err == nil && !e.last.At.IsZero() {
		e.weakIdentity(add)
	}
	e.weakSettings(add)
	if why := e.subject.hardware.sameMACs; why != "" {
		add(bmc.FindingSameMACs, "%s: correct the wrong one; this refuses nothing", why)
	}
	e.weakDescription(add, now)
	return all
}

type adder func(code bmc.FindingCode, format string, args ...any)

// weakIdentity adds findings about the identity of what answered. // I8
func (e *entry) weakIdentity(add adder) {
	switch {
	case e.last.Identity == guard.IdentityDiffers:
		add(bmc.FindingIdentity, "another machine than the Node's answers (%s): correct the address", orNone(e.last.Reading.Identity.UUID))
	case e.last.Identity == guard.IdentityMatches:
	case !e.device().Identifies():
		add(bmc.FindingNotEnrolled, "the device does not identify the host that it switches: check the cabling, then run fencectl bmc enroll")
	case e.subject.node != "": // without a Node there is nothing to compare with
		add(bmc.FindingIdentity, "nothing proves that it is the Node's BMC (it reports %s): pin the UUID in hosts.d, or run fencectl bmc enroll",
			orNone(e.last.Reading.Identity.UUID))
	}
}

// weakSettings adds findings about the configuration alone.
func (e *entry) weakSettings(add adder) {
	d := e.device()
	if why := weakPassword(d); why != "" && d.Unusable == nil {
		add(bmc.FindingDefaultPassword, "%s: set another on the BMC, then in the inventory", why)
	}
	if d.NativeCanReplace() {
		add(bmc.FindingLowerAssurance, "driver %s cannot refuse a forged answer: use driver ipmi or redfish if the BMC supports it", d.Driver)
	}
	if d.IsNative() && !d.Identifies() {
		add(bmc.FindingLowerAssurance, "its UUID does not identify the host, so only the enrolment says whose power it switches: "+
			"if the BMC can report the host's UUID, set that up and enroll again")
	}
	if on := d.Parameters["ssl_insecure"]; on != "" && on != "0" {
		add(bmc.FindingCertificateTrust, "ssl_insecure of %s verifies no certificate: leave it out, or use driver redfish with tls.ca", d.Agent)
	}
	if d.Endpoint.Protocol != bmc.ProtocolRedfish {
		return
	}
	switch {
	case d.Endpoint.Plain:
		add(bmc.FindingCertificateTrust, "it is polled over http, which sends the password in clear text: use https")
	case d.TLS.InsecureSkipVerify && d.Driver.Descriptor().NoPin:
		add(bmc.FindingCertificateTrust, "its certificate is not verified: set tls.ca")
	case d.TLS.InsecureSkipVerify && d.TLS.PinSHA256 == "":
		add(bmc.FindingCertificateTrust, "its certificate is neither verified nor pinned: set tls.ca or tls.pinSHA256")
	}
}

// firstPlausibleYear is the earliest year that a clock which was set can show. A
// BMC without a battery starts in 1970 or 2000.
const firstPlausibleYear = 2010

// weakDescription adds findings about what the device reports of itself.
func (e *entry) weakDescription(add adder, now time.Time) {
	t := e.description
	if !t.Clock.IsZero() && !t.ClockAt.IsZero() {
		switch off := t.Clock.Sub(t.ClockAt); {
		case off.Abs() <= clockTolerance:
		case t.Clock.UTC().Year() < firstPlausibleYear:
			add(bmc.FindingClock, "its clock is not set (it says %d), so its log cannot be trusted: set up time synchronisation", t.Clock.UTC().Year())
		default:
			add(bmc.FindingClock, "its clock is off by %s, so its log cannot be trusted: set up time synchronisation", off.Round(time.Second))
		}
	}
	if t.RestorePolicy == "always-on" || t.RestorePolicy == "previous" {
		add(bmc.FindingRestorePolicy, "its power restore policy is %s: a fenced host can start when mains power returns; set always-off", t.RestorePolicy)
	}
	switch until := t.CertificateUntil; {
	case until.IsZero(), !until.Before(now.Add(certificateNotice)):
	case until.Before(now):
		add(bmc.FindingCertificateExpired, "its certificate ended at %s: renew it", until.UTC().Format(time.RFC3339))
	default:
		add(bmc.FindingCertificateExpired, "its certificate ends at %s: renew it", until.UTC().Format(time.RFC3339))
	}
}

func orNone(s string) string {
	if s == "" {
		return "no UUID"
	}
	return s
}

// defaultPasswords are the factory passwords of BMCs, from the vendors' manuals
// and public lists of default credentials. They are compared with the
// configuration and never tried on a BMC.
var defaultPasswords = map[string]bool{
	"0penBmc": true, "ADMIN": true, "Admin@9000": true, "Admin@123": true, "Administrator": true, "Changeme": true,
	"HPInvent": true, "Huawei12#$": true, "PASSW0RD": true, "PASSWORD": true, "Passw0rd": true, "Password": true,
	"Password1": true, "admin": true, "admin123": true, "advcomm500349": true, "alpine": true, "amiadmin": true,
	"calvin": true, "changeme": true, "cmb9.admin": true, "default": true, "insecure": true, "password": true, "password1": true,
	"root": true, "superuser": true, "supervisor": true, "testpass": true, "welcome": true, "123456": true, "12345678": true,
}

// weakPassword returns what is weak about a device's configured credentials; ""
// for nothing. The text never contains them. // I25
func weakPassword(d bmc.Device) string {
	text := d.Password.Reveal()
	switch {
	case text == "" && d.Driver.Descriptor().AccountOptional:
		return ""
	case text == "":
		return "the configured password is empty"
	case defaultPasswords[text]:
		return "the configured password is a vendor's factory password"
	case strings.EqualFold(text, d.Username):
		return "the configured password is the user name"
	}
	return ""
}
