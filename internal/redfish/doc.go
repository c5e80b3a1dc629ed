// Package redfish implements bmc.Power over Redfish.
//
// gofish implements the protocol: requests, authentication, errors, names. It
// runs on our own HTTP client and RoundTripper, which control what a BMC must not
// decide: who receives the credentials, how long we wait, how much we read, and
// what is retried. gofish binds a client to one context, so each operation
// creates a new client. That costs no request, and session and TCP connection are
// shared.
//
// A warm read is one request, and so is a warm command. A cold read of a
// configured system is two: login and system. The package does not decide whether
// a host is off: an accepted command is only a Receipt, and bmc.Proof decides.
// Reading.Session changes with every sign that the BMC may have restarted;
// restartDetector finds the restarts that no error shows.
package redfish
