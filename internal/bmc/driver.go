package bmc

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Driver is the name of the code that talks to a device.
type Driver string

// The drivers. Each has its Descriptor: these four below, a new one in a file of its own.
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

// Drivers lists the drivers, the strict ones first.
func Drivers() []Descriptor {
	return slices.SortedFunc(maps.Values(descriptors), func(a, b Descriptor) int {
		return cmp.Or(-cmp.Compare(a.Assurance, b.Assurance), cmp.Compare(a.Name, b.Name)) // "strict" before "lower"
	})
}

// Descriptor returns the Descriptor of the driver; the zero value if the driver
// is unknown.
func (d Driver) Descriptor() Descriptor { return descriptors[d] }

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
func (d Device) String() string { return d.Name() }

// Name is String without a copy of the device, which is large.
func (d *Device) Name() string {
	if text := d.Driver.Descriptor().text; text != nil {
		return text(*d)
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

// descriptors has every driver by its name. The file of a driver that is not one of these four adds
// its own in an init function.
var descriptors = map[Driver]Descriptor{
	DriverIPMI: {
		Name: DriverIPMI, Assurance: AssuranceStrict, Identifies: true, KeepsSession: true,
		Protocols: []Protocol{ProtocolIPMI},
		schemes: map[string]scheme{
			"ipmi": {protocol: ProtocolIPMI, port: 623}, "libvirt": {protocol: ProtocolIPMI, port: 623},
			// Metal3 switched an iRMC by IPMI at the host of the address. The port of
			// the address was that of its SCCI interface, which switches no power.
			"irmc": {protocol: ProtocolIPMI, port: 623, portIsOther: true},
		},
		DistinguishHint: "correct the address",
	},
	DriverRedfish: {
		Name: DriverRedfish, Assurance: AssuranceStrict, Identifies: true, KeepsSession: true,
		Protocols: []Protocol{ProtocolRedfish},
		schemes: map[string]scheme{
			"redfish": {protocol: ProtocolRedfish}, "redfish-virtualmedia": {protocol: ProtocolRedfish}, "redfish-uefihttp": {protocol: ProtocolRedfish},
			"ilo5-redfish": {protocol: ProtocolRedfish}, "ilo5-virtualmedia": {protocol: ProtocolRedfish},
			"idrac-redfish": {protocol: ProtocolRedfish}, "idrac-virtualmedia": {protocol: ProtocolRedfish},

			// Metal3 removed these schemes, and old clusters still use them. Each of
			// these BMCs has a Redfish service on the web server of the old protocol.
			"idrac": {protocol: ProtocolRedfish, pathIsOther: true}, // WS-Management
			"ibmc":  {protocol: ProtocolRedfish, pathIsOther: true},
			"ilo4":  {protocol: ProtocolRedfish, pathIsOther: true}, "ilo4-virtualmedia": {protocol: ProtocolRedfish, pathIsOther: true},
			"ilo5": {protocol: ProtocolRedfish, pathIsOther: true},

			// the form in which fenced itself writes a Redfish address
			"https": {protocol: ProtocolRedfish}, "http": {protocol: ProtocolRedfish},
		},
		DistinguishHint: correctPath,
	},
	DriverBMCLib: {
		Name: DriverBMCLib, Assurance: AssuranceLower, KeepsSession: true,
		Protocols: []Protocol{ProtocolIPMI, ProtocolRedfish},
		Providers: map[Protocol][]string{
			ProtocolIPMI:    {"ipmitool"},
			ProtocolRedfish: {"gofish", "dell", "openbmc", "asrockrack"},
		},
		NoPin:           true,
		DistinguishHint: correctPath,
		text:            func(d Device) string { return "bmclib+" + d.Endpoint.String() },
		configError:     bmclibConfigError,
		replaceable:     func(Device) bool { return true },
	},
	DriverFenceAgent: {
		Name: DriverFenceAgent, Assurance: AssuranceLower,
		ByParameters: true, AccountOptional: true,
		DistinguishHint: "correct the address, or write the plug of each in its parameters",
		text:            agentText,
		part:            agentPart,
		configError:     agentConfigError,
		replaceable:     func(d Device) bool { return agentsOfBMCs.MatchString(d.Agent) },
	},
}

// correctPath is the hint for services that may have several systems.
const correctPath = "correct the address, or write the path of each one's system, as /redfish/v1/Systems/1"

func bmclibConfigError(d Device) (key, why string) {
	standard := 443
	if d.Endpoint.Plain {
		standard = 80
	}
	switch {
	case d.TLS.PinSHA256 != "":
		return "tls.pinSHA256", "driver bmclib does not check pinSHA256; give the BMC's certificate or its CA as tls.ca, or use the native driver"
	case d.Provider == "openbmc" && d.Endpoint.Port != standard:
		// The provider checks at the standard port whether the BMC is an OpenBMC,
		// whatever port is configured.
		return "address", fmt.Sprintf("provider openbmc asks only port %d, not %d; use provider gofish or the native driver", standard, d.Endpoint.Port)
	}
	return "", ""
}

var agentsOfBMCs = regexp.MustCompile(`^fence_(ipmilan|ipmilanplus|redfish|idrac|ilo.*|imm|drac5)$`)

func agentText(d Device) string {
	text := d.Agent + "://"
	if d.Endpoint.Host != "" {
		text += d.Endpoint.HostPort()
	}
	if plug := d.plug(); plug != "" {
		text += "#" + plug
	}
	return text
}

// agentPart is the machine or outlet that an agent switches.
func agentPart(d Device) string {
	all := d.Parameters
	switch {
	case d.isSingleMachine():
		return all["target"]
	case all["systems_uri"] != "" || all["systems-uri"] != "":
		return lastSegment(d.plug())
	}
	return d.plug()
}

// isSingleMachine reports whether the agent switches the one machine behind the
// address, whatever the plug. Over IPMI it may reach others, selected by target.
func (d Device) isSingleMachine() bool {
	switch d.Agent {
	case "fence_idrac", "fence_imm", "fence_amt_ws", "fence_rsa", "fence_rsb", "fence_alom":
		return true
	case "fence_ilo_moonshot": // a chassis
		return false
	}
	return strings.HasPrefix(d.Agent, "fence_ipmilan") || strings.HasPrefix(d.Agent, "fence_ilo")
}

// plug is the outlet or machine that a fence agent switches. Agents call it plug;
// port is the older name of the parameter. fence_redfish uses systems_uri instead
// of the plug. Some agents select machines by uuid. Some chain several devices
// and write them SWITCH:PLUG.
func (d Device) plug() string {
	all := d.Parameters
	p := cmp.Or(all["systems_uri"], all["systems-uri"], all["plug"], all["port"], all["uuid"])
	if s := all["switch"]; s != "" && p != "" {
		p = s + ":" + p
	}
	return p
}

// requiredParameter names the parameter that selects a machine, for the agents
// that otherwise select one by its position. // I8
var requiredParameter = map[string]string{"fence_redfish": "systems_uri"}

// plugSeparator separates a list of plugs by default.
const plugSeparator = ","

func agentConfigError(d Device) (key, why string) {
	all := d.Parameters
	if must := requiredParameter[d.Agent]; must != "" && all[must] == "" && all[strings.ReplaceAll(must, "_", "-")] == "" {
		return "parameters", fmt.Sprintf("%s without %s selects a machine by its position; set the parameter %s", d.Agent, must, must)
	}
	separator, ok := all["plug_separator"]
	if !ok {
		separator = plugSeparator
	}
	for _, name := range []string{"plug", "port"} {
		if why := SeveralPlugs(d.Agent, all[name], separator); why != "" {
			return "parameters." + name, why
		}
	}
	return "", ""
}

// SeveralPlugs returns the reason to reject several outlets in one device, or an empty
// string: a second host that shares one of them would not be noticed. // I9
func SeveralPlugs(agent, plug, separator string) string {
	if separator == "" || !strings.Contains(plug, separator) {
		return ""
	}
	return fmt.Sprintf("plug %q of %s names several outlets; write each as a device of the level "+
		"(or set plug_separator, when the %q belongs to a name)", plug, agent, separator)
}
