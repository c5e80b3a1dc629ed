// Package power shares the BMCs among their users: each service handles one
// operation at a time, urgent users go first, and users of one device share its
// session. It combines all devices of a level into one Power, and reads the lower
// levels when a level reads Off.
//
//	session.go  one use of a level: its readings, and what they prove
//	level.go    all devices of a level as one Power
//	witness.go  what lower levels read while it reads Off
//	actor.go    users that share BMCs
//	service.go  one at a time for each BMC, urgent ones first
//	lockout.go  devices that are not asked yet: refused accounts, probes that keep failing
package power
