package bmc

import (
	"cmp"
	"maps"
	"slices"
)

// Driver is the code that talks to a device.
type Driver string

// The drivers. Each declares its Descriptor in a file driver_*.go.
const (
	DriverIPMI       Driver = "ipmi"
	DriverRedfish    Driver = "redfish"
	DriverBMCLib     Driver = "bmclib"      // for what the native ones refuse
	DriverFenceAgent Driver = "fence-agent" // PDUs, hypervisors, chassis managers
)

// Assurance is how much an answer of a driver can be trusted.
type Assurance string

// The assurances.
const (
	// AssuranceStrict: forged answers are refused, a restart of the BMC is
	// noticed, and the BMC tells whose it is.
	AssuranceStrict Assurance = "strict"
	// AssuranceLower: a library or a command of others is believed, and the
	// device does not tell whose it is: it must be enrolled.
	AssuranceLower Assurance = "lower"
)

// Descriptor is all in which one driver differs from another, outside of its own
// package. The zero value describes a driver that does not exist: its assurance is the
// lower one.
type Descriptor struct {
	Name      Driver
	Assurance Assurance
	// Identifies: its devices tell whose host they power. // I8
	Identifies bool

	// Protocols are those of the addresses that it takes. A driver that has the name of
	// a protocol is its native one.
	Protocols []Protocol
	// ByParameters: its address is only HOST[:PORT], and parameters choose what is
	// switched.
	ByParameters bool
	// schemes are the address schemes that lead to its protocol.
	schemes map[string]scheme
	// Providers are those that can be asked for; the first is the default.
	Providers map[Protocol][]string
	// NoPin: it cannot compare the BMC's certificate with tls.pinSHA256.
	NoPin bool
	// AccountOptional: some of its devices take no user name and no password.
	AccountOptional bool
	// DistinguishHint is what an administrator corrects when two devices seem to be one.
	DistinguishHint string

	// text is the device for people; nil = its address.
	text func(Device) string
	// part is the outlet or system behind the service; nil = the system of the address.
	part func(Device) string
	// configError says which key of the device is wrong, and why; nil = none is.
	configError func(Device) (key, why string)
	// replaceable says whether a strict driver may well reach the device; nil = never.
	replaceable func(Device) bool
}

var descriptors = map[Driver]Descriptor{}

// declare adds a driver to the known ones; only init functions call it.
func declare(d Descriptor) { descriptors[d.Name] = d }

// Drivers lists the drivers, the strict ones first.
func Drivers() []Descriptor {
	return slices.SortedFunc(maps.Values(descriptors), func(a, b Descriptor) int {
		return cmp.Or(-cmp.Compare(a.Assurance, b.Assurance), cmp.Compare(a.Name, b.Name)) // "strict" before "lower"
	})
}

// Descriptor gives what is known of the driver; the zero value when there is none of
// this name.
func (d Driver) Descriptor() Descriptor { return descriptors[d] }

// Supports says whether the driver takes addresses of the protocol.
func (d Descriptor) Supports(p Protocol) bool { return slices.Contains(d.Protocols, p) }

// Assurance is how much this device's answers can be trusted.
func (d Device) Assurance() Assurance {
	return cmp.Or(d.Driver.Descriptor().Assurance, AssuranceLower)
}

// Identifies says whether the device tells whose host it powers. One that does
// not must have been enrolled. // I8
func (d Device) Identifies() bool { return d.Driver.Descriptor().Identifies }

// String gives the device for people and logs, without any secret.
func (d Device) String() string {
	if text := d.Driver.Descriptor().text; text != nil {
		return text(d)
	}
	return d.Endpoint.String()
}

// ConfigError says what is wrong with a device whatever stands behind its address, so
// that it shows before anything is asked: which key of its entry, and why. Both
// are empty when nothing is. What a BMC or the agent itself must be asked for is
// left to the driver.
func (d Device) ConfigError() (key, why string) {
	if refused := d.Driver.Descriptor().configError; refused != nil {
		return refused(d)
	}
	return "", ""
}

// NativeCanReplace says whether a device of lower assurance is a BMC, which a native driver
// may well reach. An outlet has no other way, so its lower assurance is no weakness that
// anybody could mend.
func (d Device) NativeCanReplace() bool {
	replaceable := d.Driver.Descriptor().replaceable
	return replaceable != nil && replaceable(d)
}
