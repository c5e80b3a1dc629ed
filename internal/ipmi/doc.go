// Package ipmi implements bmc.Power over IPMI 2.0 (RMCP+).
//
// It exists because the usual clients accept an unauthenticated datagram as the
// answer to a command of an encrypted session. For a fencer that is a false proof
// of off. Here a datagram counts as an answer only if it is encrypted and
// authenticated with the keys of this session, is fresh, and answers exactly the
// command that was sent. Everything else is dropped.
//
// From the caller to the datagram:
//
//	client.go    Read and Send, each an operation over as many sessions as it needs
//	login.go     a session: which suites are asked for, the handshake, what is tried again
//	cleanup.go   no session stays open on the BMC
//	session.go   one command in a session, and how long a slow BMC is waited for
//	wire.go      a socket, tries and deadlines
//	rakp.go      messages and keys of the handshake; pure
//	command.go   the commands and their answers; pure
//	packet.go    framing, encryption and integrity of a datagram; pure
//	failure.go   what went wrong, and its kind
//	describe.go  what a BMC reports about itself, for the BMC health check
//	audit.go     its weaknesses, for people
//
// Section and table numbers are those of the IPMI specification, second
// generation, version 2.0, revision 1.1.
package ipmi
