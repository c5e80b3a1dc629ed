package bmc

import (
	"cmp"
	"maps"
	"slices"
)

// Driver is the name of the code that talks to a device.
type Driver string

// The drivers. Each declares its Descriptor in a file driver_*.go.
const (
	DriverIPMI       Driver = "ipmi"
	DriverRedfish    Driver = "redfish"
	DriverBMCLib     Driver = "bmclib"      // for BMCs that the native drivers do not support
	DriverFenceAgent Driver = "fence-agent" // PDUs, hypervisors, chassis managers
)

// Assurance is how much an answer of a driver can be trusted.
type Assurance string

// The assurances.
const (
	// AssuranceStrict: the driver rejects forged answers and notices a restart of
	// the BMC, and the BMC reports its identity.
	AssuranceStrict Assurance = "strict"
	// AssuranceLower: the driver trusts the output of a library or program, or the
	// device does not report its identity, so it must be enrolled.
	AssuranceLower Assurance = "lower"
)

// Descriptor holds all differences between the drivers outside of their packages.
// The zero value describes an unknown driver, with the lower assurance.
type Descriptor struct {
	Name      Driver
	Assurance Assurance
	// Identifies: its devices report the identity of the host that they power, unless
	// their entry or their enrolment says otherwise. // I8
	Identifies bool

	// KeepsSession: it keeps a session on the device between two requests.
	KeepsSession bool

	// Protocols are the protocols of its addresses. A driver with the name of a
	// protocol is the native driver of it.
	Protocols []Protocol
	// ByParameters: its address is only HOST[:PORT], and parameters select what is
	// switched.
	ByParameters bool
	// schemes are the address schemes of its protocol.
	schemes map[string]scheme
	// Providers are the providers to choose from; the first is the default.
	Providers map[Protocol][]string
	// NoPin: it cannot compare the BMC's certificate with tls.pinSHA256.
	NoPin bool
	// AccountOptional: some of its devices need no user name and no password.
	AccountOptional bool
	// DistinguishHint tells an administrator what to correct if two devices seem to
	// be one.
	DistinguishHint string

	// text names the device for people; nil means its address.
	text func(Device) string
	// part is the outlet or system behind the service; nil means the system of the
	// address.
	part func(Device) string
	// configError returns which key of the device is wrong, and why; nil means none
	// can be.
	configError func(Device) (key, why string)
	// replaceable reports whether a strict driver may support the device; nil means
	// never.
	replaceable func(Device) bool
}

var descriptors = map[Driver]Descriptor{}

// declare registers a driver; only init functions call it.
func declare(d Descriptor) { descriptors[d.Name] = d }

// Drivers lists the drivers, the strict ones first.
func Drivers() []Descriptor {
	return slices.SortedFunc(maps.Values(descriptors), func(a, b Descriptor) int {
		return cmp.Or(-cmp.Compare(a.Assurance, b.Assurance), cmp.Compare(a.Name, b.Name)) // "strict" before "lower"
	})
}

// Descriptor returns the Descriptor of the driver; the zero value if the driver
// is unknown.
func (d Driver) Descriptor() Descriptor { return descriptors[d] }

// Supports reports whether the driver accepts addresses of the protocol.
func (d Descriptor) Supports(p Protocol) bool { return slices.Contains(d.Protocols, p) }

// Assurance is how much this device's answers can be trusted.
func (d Device) Assurance() Assurance {
	if d.IgnoreUUID || d.Enrolled {
		return AssuranceLower
	}
	return cmp.Or(d.Driver.Descriptor().Assurance, AssuranceLower)
}

// IsNative reports whether a driver of fenced itself talks to the device: it takes
// as long as its protocol needs, and starts no program.
func (d Device) IsNative() bool { return d.Driver.Descriptor().Assurance == AssuranceStrict }

// Identifies reports whether the device reports the identity of its host. One
// that does not must be enrolled. // I8
func (d Device) Identifies() bool {
	return d.Driver.Descriptor().Identifies && !d.IgnoreUUID && !d.Enrolled
}

// String names the device for people and logs, without any secret.
func (d Device) String() string {
	if text := d.Driver.Descriptor().text; text != nil {
		return text(d)
	}
	return d.Endpoint.String()
}

// ConfigError checks a device without contacting it: it returns the wrong key of
// its entry, and why. Both are empty if nothing is wrong. What only the BMC or
// the agent can tell is left to the driver.
func (d Device) ConfigError() (key, why string) {
	if refused := d.Driver.Descriptor().configError; refused != nil {
		return refused(d)
	}
	return "", ""
}

// NativeCanReplace reports whether a device of lower assurance is a BMC that a
// native driver may support. An outlet has no native driver, so its lower
// assurance is not a finding.
func (d Device) NativeCanReplace() bool {
	replaceable := d.Driver.Descriptor().replaceable
	return replaceable != nil && replaceable(d)
}
