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
//
//	client.go      Read and Send
//	auth.go        sessions and Basic authentication
//	system.go      which system of the service is the host, and what it answers
//	object.go      a resource as a BMC returned it
//	transport.go   what is sent where, how long it is waited for, and what is retried
//	connection.go  what the end of a connection means
//	tls.go         what is trusted, and why a handshake failed
//	describe.go    what a BMC reports about itself, and the audit of its certificate
//	errors.go      errors, without credentials
package redfish
