package bmc

import (
	"fmt"
	"net/netip"
	"strings"
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

// Service names what only one may ask at a time: the BMC or the PDU behind the address,
// however the address is written and whichever driver asks. All standard ports lead to
// the same service; another port may be another BMC. // I9
func (d Device) Service() string {
	e := d.Endpoint
	host := e.plainHost()
	switch e.Port {
	case 623, 443, 80:
		return host
	case 0, 22, 23, 161: // the agent's own, SSH, Telnet, SNMP
		switch {
		case !d.Driver.Descriptor().ByParameters:
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
	if part := d.Driver.Descriptor().part; part != nil {
		return part(d)
	}
	return lastSegment(d.Endpoint.System)
}

func lastSegment(path string) string {
	path = strings.TrimRight(path, "/")
	return path[strings.LastIndex(path, "/")+1:]
}

// Key names what is switched: the service, and the part of it.
func (d Device) Key() string {
	if part := d.Part(); part != "" {
		return d.Service() + " " + part
	}
	return d.Service()
}
