// Package ipmi drives a BMC over IPMI 2.0 (RMCP+) and implements bmc.Power.
//
// It exists because the usual clients take an unauthenticated datagram for the
// answer to a command of an encrypted session; for a fencer that is a false
// proof of off. Here a datagram counts as an answer only if it is encrypted and
// authenticated with the keys of this session, is fresh, and answers exactly
// the command that was asked. Everything else is dropped unseen.
//
// The bytes are handled by pure files: packet.go (framing), rakp.go (the
// handshake's messages and keys), seal.go (encryption and integrity),
// message.go (commands inside), deviceid.go, sel.go and fru.go (what a BMC tells
// about itself). The world is in wire.go (a socket, tries and deadlines),
// handshake.go, leave.go (no session stays behind), session.go, operation.go and
// client.go; describe.go and audit.go are for the sweep and for people.
//
// Section and table numbers are those of the IPMI specification, second
// generation, version 2.0, revision 1.1.
package ipmi
