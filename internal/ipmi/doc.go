// Package ipmi implements bmc.Power over IPMI 2.0 (RMCP+).
//
// It exists because the usual clients accept an unauthenticated datagram as the
// answer to a command of an encrypted session. For a fencer that is a false proof
// of off. Here a datagram counts as an answer only if it is encrypted and
// authenticated with the keys of this session, is fresh, and answers exactly the
// command that was sent. Everything else is dropped.
//
// Pure files handle the bytes: packet.go (framing), rakp.go (messages and keys of
// the handshake), seal.go (encryption and integrity), message.go (commands),
// deviceid.go, sel.go and fru.go (what a BMC reports about itself). The other
// files do the I/O: wire.go (a socket, tries and deadlines), handshake.go,
// cleanup.go and unused.go (no session stays open on the BMC), login.go (which
// suites are asked for, and what is tried again), session.go, patience.go (how long
// a slow BMC is waited for), operation.go and client.go. describe.go and audit.go
// are for the BMC health check and for people.
//
// Section and table numbers are those of the IPMI specification, second
// generation, version 2.0, revision 1.1.
package ipmi
