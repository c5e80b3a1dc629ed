// Package api is how people and scripts talk to a running fenced: HTTP with
// JSON bodies on a unix socket. It holds the server and the
// client of the types of package wire, and knows the daemon only through the Daemon interface.
//
// Two tables hold the routes: reads (server.go) those that change nothing, wire.Verbs
// those of orders, with the role that may use each (a higher role may too) and
// what its body may say. GET /v1/status is open to viewers; POST /v1/nodes/{node}/hold to
// operators.
//
// The body of a POST is {"reason"}, with what its verb takes of {"offOnly", "yes",
// "dryRun", "for", "asIs", "typed", "shown"} (see wire.Order); the reason is
// mandatory, except for bmc/test and bmc/audit, and the actor is whoever the kernel says holds the other end of the
// socket (SO_PEERCRED, and the login uid of that process), never what the body says. An order that was accepted
// is carried through even when its caller goes away.
//
// GET /v1/events gives the events that are kept, then each new one. An event is named by its stream, which changes with each start of
// the daemon, and its seq, which counts in that stream from 1. ?stream=ID&after=SEQ gives those after one; if the stream is another by now,
// all that are kept.
//
// Who has no role is refused when the connection is accepted, before anything is read, and so is who finds no seat (listen.go).
//
// Every answer that is not 200 has the body {"code", "message", "hint"}:
//
//	400 BadRequest       the request cannot be understood, has no reason, or a name that nothing can have
//	403 NotAuthorised    the caller's role does not allow it
//	404 NotFound         no such route, cluster, node or run
//	405 MethodNotAllowed the route exists for another method
//	409 Conflict         something else is going on there, or, with the code
//	                     SecondPersonNeeded, another person must give the order, too
//	413 TooLarge         the body is larger than any order
//	422                  refused by a gate; code is the gate's reason code, or PersonUnknown:
//	                     it needs two persons, and the caller counts as none
//	500 Internal         fenced could not do it; the message says what
//	503                  TooManyConnections: no seat is left for the caller, and nothing was read
//	504 Timeout          fenced had no answer in time
package api
