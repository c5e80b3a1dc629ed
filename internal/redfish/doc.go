// Package redfish drives a host's power over Redfish, as bmc.Power.
//
// gofish brings the protocol: requests, authentication, errors, the names of
// things. It runs behind our own HTTP client and RoundTripper, which keep what
// a BMC must not decide: who sees the credentials, how long we wait, how much
// we read, and what is asked again. gofish binds a client to one context, so
// each operation makes a new one; that costs no request, and session and TCP
// connection are shared.
//
// A warm read is one request, and so is a warm command. A cold read of a
// configured system is two: login and system. The package decides nothing about
// off: an accepted command is only a Receipt, and bmc.Proof stands above.
// Reading.Session changes with every sign that the BMC may have restarted; see
// sightings for the ones that hide.
package redfish
