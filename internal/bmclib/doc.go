// Package bmclib drives BMCs through the providers of bmc-toolbox/bmclib, for
// hardware that the native drivers refuse. It is of lower assurance: ipmitool
// takes a forged datagram for an answer, and a restart of the BMC between two
// readings is not noticed.
//
// Of bmclib only a provider is used, one per device, made by its own
// constructor. bmclib's Client, which tries every provider it knows with the
// same account, never exists here; so there is no fall-back that could answer
// in place of the provider that was asked, and no log that could hold a secret.
//
// What a provider says is taken by an exact list of answers; its "ok" to a
// command means accepted. The proof is made above, in bmc.Proof, from readings.
//
// bmclib gives ipmitool the password in the environment of that child, which
// lives for one command: root and fenced's own user can see it there, argv never
// holds it. The providers over HTTPS speak through a transport of our own, which
// bounds and times every request and keeps it on the BMC and on the one system.
package bmclib
