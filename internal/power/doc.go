// Package power shares the BMCs among their users: each service handles one
// operation at a time, urgent users go first, and users of one device share its
// session. It combines all devices of a level into one Power, and reads the lower
// levels when a level reads Off.
//
//	actor.go    one at a time for each BMC, with service.go and operation.go
//	level.go    all devices of a level as one Power
//	witness.go  what lower levels read while it reads Off
package power
