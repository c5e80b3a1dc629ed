// Package redfish drives a host's power over Redfish, as bmc.Power.
//
// gofish brings the protocol: service root, sessions, collections, entities,
// errors. It runs behind our own HTTP client and RoundTripper, which keep what
// a BMC must not decide: who sees the credentials, how long we wait, how much
// we read, and what is asked again. gofish binds a client to one context, so
// each operation connects anew; the service root is remembered, so that costs
// no request, and session and TCP connection are shared.
//
// A warm read is one request; a cold one with a configured system is three:
// service root, login, system. The package decides nothing about off: an
// accepted command is only a Receipt, and bmc.Proof stands above.
package redfish
