// Package bmc defines the values of power control: the power state that was read,
// the commands, the proof that a host is off, and the identity of what answered.
//
//	bmc.go       the contract of a driver: Power, what it reads, and what two readings prove; pure
//	error.go     errors, and whether a command may have arrived
//	describe.go  what a BMC reports about itself, and its weaknesses
//	host.go      a host, its levels and the devices that switch it
//	secret.go    a password, which does not print
//	driver.go    the differences between the drivers
//	endpoint.go  addresses, in every form that Metal3 has or had
//	networks.go  where a BMC may be
//	identity.go  the identity of what answered: UUID, serial number, MAC addresses
//	answer.go    limits and checks of what a device sends
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
