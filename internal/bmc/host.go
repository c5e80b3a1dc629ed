package bmc

import (
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
		of = machineEntries + of
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
