// Package bmc defines the values of power control: the power state that was read,
// the commands, the proof that a host is off, and the identity of what answered.
//
//	bmc.go       the contract of a driver: Power, and what it reads
//	host.go      a host and its levels
//	driver.go    the differences between the drivers; each is declared in a driver_*.go
//	device.go    what switches a host; also fingerprint.go, a digest of what selects it
//	endpoint.go  addresses, with scheme.go and hostname.go
//	proof.go     two readings that prove Off; pure
//	identity.go  the identity of what answered, with serial.go, mac.go and placeholder.go
//	describe.go  what a BMC reports about itself, and its weaknesses
//	secret.go    a password, which does not print
//	error.go     errors, and whether a command may have arrived; also answer.go
//
// These are values; nothing here waits or uses the network. The drivers do, each
// behind Power: internal/ipmi, internal/redfish, internal/bmclib and
// internal/fenceagent. Package power decides who uses them when.
//
// The proof of off is independent of the drivers, in Proof. "Off" always means
// READ as off, twice and some time apart, on a session with a checked identity. A
// BMC that accepted a command has proven nothing. Package bmctest tests that
// every driver keeps the contract.
package bmc
