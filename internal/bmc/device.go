package bmc

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Driver is the code that talks to a device.
type Driver string

// The drivers. The native ones are strict; see Assurance.
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

// Device is one thing that switches a host's power: its BMC, or an outlet.
type Device struct {
	Driver Driver
	// Endpoint is the address; for a fence agent only Host and Port, which may be
	// empty where the agent needs none.
	Endpoint Endpoint
	// Provider is the one provider of bmclib that is used: "ipmitool", "gofish", ...
	Provider string
	// Agent is the name of a fence agent, like fence_apc_snmp, and Parameters are
	// its own; neither user name nor password nor address is among them.
	Agent      string
	Parameters map[string]string
	// SecretParameters are those of the agent's parameters that are secret beside
	// the password, like an SNMP community.
	SecretParameters map[string]Secret

	Username string
	Password Secret
	// Secret is "namespace/name" of the Kubernetes Secret that holds user name
	// and password, when they come from there.
	Secret string
	TLS    TLS
	// CipherSuites are the IPMI suites to try in order; empty is 17, then 3.
	CipherSuites []int
	// Unusable is why the device cannot be opened, like a password file that cannot
	// be read; nil when it can.
	Unusable error
	// SystemUUID picks the system of a Redfish service that has several; may be
	// empty. It is the host's pin.
	SystemUUID string
	// Networks are where the device may be; nil: anywhere.
	Networks *Networks
}

// Assurance is how much this device's answers can be trusted.
func (d Device) Assurance() Assurance {
	switch d.Driver {
	case DriverIPMI, DriverRedfish:
		return AssuranceStrict
	}
	return AssuranceLower
}

// Identifies says whether the device tells whose host it powers. One that does
// not must have been enrolled. // I8
func (d Device) Identifies() bool { return d.Assurance() == AssuranceStrict }

// String gives the device for people and logs, without any secret.
func (d Device) String() string {
	switch {
	case d.Driver == DriverFenceAgent:
		text := d.Agent + "://"
		if d.Endpoint.Host != "" {
			text += d.Endpoint.HostPort()
		}
		if plug := d.plug(); plug != "" {
			text += "#" + plug
		}
		return text
	case d.Driver == DriverBMCLib:
		return "bmclib+" + d.Endpoint.String()
	}
	return d.Endpoint.String()
}

// Service names what must be asked by one at a time: the BMC or the PDU behind
// the address, however that is written, and whoever asks it. It is the same behind
// each standard port; another port may be another BMC. // I9
func (d Device) Service() string {
	e := d.Endpoint
	host := e.plainHost()
	switch e.Port {
	case 623, 443, 80:
		return host
	case 0, 22, 23, 161: // the agent's own, SSH, Telnet, SNMP
		switch {
		case d.Driver != DriverFenceAgent:
		case host == "":
			return d.Agent
		default:
			return host
		}
	}
	return fmt.Sprintf("%s port %d", host, e.Port)
}

// plainHost is the host, however it is written.
func (e Endpoint) plainHost() string {
	host := strings.TrimSuffix(strings.ToLower(e.Host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}

// Part is the system or outlet behind the service; empty when there is only one.
// A Redfish system goes by the last word of its path, as to agents.
func (d Device) Part() string {
	all := d.Parameters
	switch {
	case d.Driver != DriverFenceAgent:
		return lastWord(d.Endpoint.System)
	case d.oneMachine():
		return all["target"]
	case all["systems_uri"] != "" || all["systems-uri"] != "":
		return lastWord(d.plug())
	}
	return d.plug()
}

func lastWord(path string) string {
	path = strings.TrimRight(path, "/")
	return path[strings.LastIndex(path, "/")+1:]
}

// oneMachine says whether the agent switches the one machine behind the address,
// whatever the plug; IPMI may reach others through it, by their target.
func (d Device) oneMachine() bool {
	switch d.Agent {
	case "fence_idrac", "fence_imm", "fence_amt", "fence_amt_ws", "fence_rsa", "fence_rsb", "fence_alom":
		return true
	case "fence_ilo_moonshot": // a chassis
		return false
	}
	return strings.HasPrefix(d.Agent, "fence_ipmilan") || strings.HasPrefix(d.Agent, "fence_ilo")
}

// Key names what is switched: the service, and the part of it.
func (d Device) Key() string {
	if part := d.Part(); part != "" {
		return d.Service() + " " + part
	}
	return d.Service()
}

// plug is the outlet or machine that a fence agent switches. Agents call it
// plug; port is the older name of the same parameter. fence_redfish goes by
// systems_uri, whatever the plug; some know machines by uuid; and some chain
// several devices, which they write SWITCH:PLUG, too.
func (d Device) plug() string {
	all := d.Parameters
	p := cmp.Or(all["systems_uri"], all["systems-uri"], all["plug"], all["port"], all["uuid"])
	if s := all["switch"]; s != "" && p != "" {
		p = s + ":" + p
	}
	return p
}
