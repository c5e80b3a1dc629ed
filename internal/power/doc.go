// Package power lets many use the same BMCs: one at a time asks each service, urgent users
// first, and those who use one device share its session. It makes one Power of all devices
// of a level, and asks the levels beside it when one reads Off.
//
//	actor.go    one at a time for each BMC, with service.go and operation.go
//	level.go    all devices of a level as one Power
//	witness.go  what lower levels say to its Off
package power
