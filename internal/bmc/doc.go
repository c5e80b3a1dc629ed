// Package bmc is the vocabulary of power: what a host's power state was read
// as, what it may be told, what proves that it is off, and which host answered.
//
//	bmc.go       the contract of a driver: Power, and what it reads
//	host.go      a host and its levels
//	driver.go    in what the drivers differ; each declares itself in a driver_*.go
//	device.go    what switches a host; fingerprint.go, all that chooses which
//	endpoint.go  addresses, with scheme.go and hostname.go
//	proof.go     two readings that prove Off; pure
//	identity.go  whose BMC it is, with serial.go, mac.go and placeholder.go
//	describe.go  what a BMC tells about itself, and what is weak about it
//	secret.go    a password, which does not print
//	error.go     what went wrong, and whether a command may have arrived, with answer.go, which words it
//
// These are values; nothing here waits, or talks to a network. The drivers do, each behind
// Power: internal/ipmi and internal/redfish, internal/bmclib and internal/fenceagent. Who
// uses them when is for package power.
// The proof of off stands above them, once, in Proof. "Off" always means READ as
// off, twice and apart, on a session whose identity was checked: a BMC that
// accepted a command has proven nothing. Package bmctest holds every driver to
// the contract.
package bmc
