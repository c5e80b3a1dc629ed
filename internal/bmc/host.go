package bmc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Host is how to switch one machine: the levels that are tried in order, and the
// identity that must answer there.
type Host struct {
	// Name is the key in state, logs and locks: EntryName for hosts.d,
	// "cluster/namespace/name" for a BareMetalHost.
	Name string
	// Levels are the ways to switch the host off, in order of preference; never
	// empty.
	Levels []Level
	// PinnedUUID is the system UUID that an administrator enrolled; may be empty.
	PinnedUUID string
	// IdentityMode is "required", "pinned" or "off".
	IdentityMode string
	// Protected hosts are never fenced automatically.
	Protected bool
	// Source is where the entry came from: a file and line, or an object.
	Source string
}

// Level is one way to switch a host off. All its devices must succeed: a host
// with two power supplies is off when both outlets are off.
type Level struct {
	Devices []Device // never empty
}

// TLS is how a Redfish service is trusted.
type TLS struct {
	CA                 string // PEM file; empty = the system's certificates
	PinSHA256          string // SHA-256 of the SubjectPublicKeyInfo, hex or base64
	InsecureSkipVerify bool   // only if the host's entry says so
	RSAKeyExchange     bool   // also offer cipher suites with RSA key exchange
}

// Timing limits the power operations. All values are positive.
type Timing struct {
	ReadTimeout time.Duration // one read
	SendTimeout time.Duration // one command
}

// machineEntries is in the names of the entries of Machines. A BareMetalHost's name has
// one part less.
const machineEntries = "machine/"

// EntryName is the name of the host of an entry of hosts.d: "cluster/node", or
// "cluster/machine/namespace/name". of is the name of a Node, or the "namespace/name" of a
// Machine: no Node's name has a slash.
func EntryName(cluster, of string) string {
	if strings.Contains(of, "/") {
		return cluster + "/" + machineEntries + of
	}
	return cluster + "/" + of
}

// EntryOf splits an EntryName.
func EntryOf(name string) (cluster, of string) {
	cluster, of, _ = strings.Cut(name, "/")
	return cluster, strings.TrimPrefix(of, machineEntries)
}

// IsMachineEntry reports whether a host has the name of an entry for a Machine.
func IsMachineEntry(name string) bool {
	_, of, _ := strings.Cut(name, "/")
	return strings.HasPrefix(of, machineEntries) && strings.Count(of, "/") == 2
}

// Address names every device of the host for people and logs, in the order of the
// levels.
func (h Host) Address() string {
	var levels []string
	for _, l := range h.Levels {
		var devices []string
		for _, d := range l.Devices {
			devices = append(devices, d.String())
		}
		levels = append(levels, strings.Join(devices, " + "))
	}
	return strings.Join(levels, ", then ")
}

// Keys returns Device.Key of every device of the host, in the order of the
// levels. Hosts that share a key would be switched together. // I9
func (h Host) Keys() []string {
	var keys []string
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			keys = append(keys, d.Key())
		}
	}
	return keys
}

// Identifies reports whether each device of the host reports its identity. // I8
func (h *Host) Identifies() bool {
	return !slices.ContainsFunc(h.Levels, func(l Level) bool {
		return slices.ContainsFunc(l.Devices, func(d Device) bool { return !d.Identifies() })
	})
}

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
	// PasswordFrom is where else the password was read, for messages: a file, or a credential of systemd. It is empty
	// before: somebody may have written the password where the path belongs. // I25
	PasswordFrom string
	TLS          TLS
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
	// Unusable is the error of a device that cannot be opened, such as a password file
	// that cannot be read; nil if it can be opened.
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

// Overlaps reports whether two devices may switch the same machine: they are of one service, and name the same
// part of it, or one of them names none. // I9
func (d Device) Overlaps(o *Device) bool {
	part, of := d.Part(), o.Part()
	return d.Service() == o.Service() && (part == of || part == "" || of == "")
}

// Fingerprint is a digest of everything that selects what this device switches:
// the driver, the address and each parameter. An enrolment is valid for one
// fingerprint only. Accounts, secrets and how the BMC is trusted are not part of
// it. // I8, I10
func (d Device) Fingerprint() string {
	e := d.Endpoint
	b, _ := json.Marshal(struct { // text and numbers always marshal, maps in a fixed order
		Driver          Driver
		Provider, Agent string
		Protocol        Protocol
		Host            string
		Port            int
		System          string
		Parameters      map[string]string `json:",omitempty"` // an empty map and no map are equal
		Secret          []string          // the names of the secret parameters, not their values
		IgnoreUUID      bool              `json:",omitempty"`
	}{d.Driver, d.Provider, d.Agent, e.Protocol, e.plainHost(), e.Port, e.System, d.Parameters,
		slices.Sorted(maps.Keys(d.SecretParameters)), d.IgnoreUUID})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
