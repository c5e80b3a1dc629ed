package bmc

import (
	"fmt"
	"net/netip"
	"strings"
)

// Device switches a host's power: its BMC, or an outlet.
type Device struct {
	Driver Driver
	// Endpoint is the address. For a fence agent only Host and Port are set, and
	// both may be empty if the agent needs no address.
	Endpoint Endpoint
	// Provider is the provider of bmclib to use: "ipmitool", "gofish", ...
	Provider string
	// Agent is the name of a fence agent, such as fence_apc_snmp. Parameters are
	// its own parameters, without user name, password and address.
	Agent      string
	Parameters map[string]string
	// SecretParameters are the secret parameters of the agent other than the
	// password, such as an SNMP community.
	SecretParameters map[string]Secret

	Username string
	Password Secret
	// Secret is the "namespace/name" of the Kubernetes Secret with user name and
	// password, if they come from one.
	Secret string
	TLS    TLS
	// BasicAuth: use Basic authentication and no session, for Redfish services that
	// demand it even on the login.
	BasicAuth bool
	// IgnoreUUID: the UUID that a native driver reads is not that of the host, and not
	// even constant. The device is used only after it was enrolled.
	IgnoreUUID bool
	// Enrolled: a person enrolled the device, which reported no UUID that identifies
	// its host, by what else it reported. It does not come from the configuration.
	Enrolled bool
	// BMCKey is the key of the BMC for IPMI (K_g), in raw bytes; empty means that it
	// has none.
	BMCKey Secret
	// CipherSuites are the IPMI suites to try in order; empty is 17, then 3.
	CipherSuites []int
	// Unusable is why the device cannot be opened, such as a password file that
	// cannot be read; nil if it can.
	Unusable error
	// SystemUUID selects the system of a Redfish service that has several; it may
	// be empty. It is the host's pinned UUID.
	SystemUUID string
	// Networks limit where the device may be; nil means anywhere.
	Networks *Networks
}

// Service identifies what handles one request at a time: the BMC or the PDU
// behind the address, however the address is written and whichever driver is
// used. All standard ports mean the same service; another port may be another
// BMC. // I9
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

// plainHost is the host in a normal form.
func (e Endpoint) plainHost() string {
	host := strings.TrimSuffix(strings.ToLower(e.Host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}

// Part is the system or outlet behind the service; empty if there is only one. A
// Redfish system is named by the last segment of its path, as fence agents do.
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

// Key identifies what is switched: the service and its part.
func (d Device) Key() string {
	if part := d.Part(); part != "" {
		return d.Service() + " " + part
	}
	return d.Service()
}
