package bmc

import (
	"strings"
	"time"
)

// Host is one machine's way to its power: the levels that are tried in order,
// and which identity must answer there.
type Host struct {
	// Name is the key in state, logs and locks: "cluster/node" for hosts.d,
	// "cluster/namespace/name" for a BareMetalHost.
	Name string
	// Levels are the ways to switch the host off, the preferred first; never empty.
	Levels []Level
	// PinnedUUID is the system UUID an administrator enrolled; may be empty.
	PinnedUUID string
	// IdentityMode is "required", "pinned" or "off".
	IdentityMode string
	// Protected hosts are never fenced automatically.
	Protected bool
	// Source names where this came from, for people: a file and line, or an object.
	Source string
}

// Level is one way to switch a host off. All its devices must succeed: a host
// with two power supplies is off when both outlets are.
type Level struct {
	Devices []Device // never empty
}

// TLS says how a Redfish service is trusted.
type TLS struct {
	CA                 string // path of a PEM file; empty = the system's pool
	PinSHA256          string // SHA-256 of the SubjectPublicKeyInfo, hex or base64
	InsecureSkipVerify bool   // only when the host's entry says so
}

// Timing bounds the power operations. All are positive.
type Timing struct {
	ReadTimeout time.Duration // one read
	SendTimeout time.Duration // one command
}

// Address is every device of the host for people and logs, the levels in order.
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

// Keys names every device of the host, the levels in order. Two hosts that share
// one would be switched together. // I9
func (h Host) Keys() []string {
	var keys []string
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			keys = append(keys, d.Key())
		}
	}
	return keys
}
