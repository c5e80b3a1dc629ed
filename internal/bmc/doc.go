// Package bmc is the vocabulary of power: what a host's power state was read
// as, what it may be told, what proves that it is off, and which host answered.
//
// Nothing here talks to a network. internal/ipmi and internal/redfish do, each
// behind the Power contract; the proof of off stands above them, once, in
// Proof. "Off" always means READ as off, twice and apart, on a session whose
// identity was checked: a BMC that accepted a command has proven nothing.
package bmc
