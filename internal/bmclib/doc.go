// Package bmclib implements bmc.Power with the providers of bmc-toolbox/bmclib,
// for hardware that the native drivers do not support. It is of lower assurance:
// ipmitool accepts forged datagrams as answers, and a restart of the BMC between
// two readings is not noticed.
//
// Only a single provider of bmclib is used per device, created with its own
// constructor. bmclib's Client, which tries every provider with the same account,
// is never used. So there is no fallback that could answer instead of the
// configured provider, and no log that could contain a secret.
//
// A provider's power states are compared with an exact list. Its success of a
// command means accepted. The proof is made from readings, in bmc.Proof.
//
// bmclib gives ipmitool the password in the environment of that child process,
// which runs for one command: root and fenced's own user can see it there; it is
// never in argv. The providers over HTTPS use our own transport, which limits
// every request in size and time, and restricts it to the BMC and the configured
// system.
//
//	client.go    Read and Send, each through one provider
//	provider.go  the providers that can be chosen, and ipmitool
//	guard.go     our transport: what a provider may send, and what the answers say
//	errors.go    errors, without secrets
package bmclib
