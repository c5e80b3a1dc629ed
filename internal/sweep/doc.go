// Package sweep is the BMC health check. It polls every BMC of the inventory
// periodically, so that a dead BMC is known before it is needed. It only reads,
// it gives way to runs, and it closes its sessions.
//
//	sweep.go      options and the loop
//	inventory.go  devices that are added, changed and removed
//	schedule.go   which device is polled when, and which must wait; pure
//	account.go    the pause after a refused account
//	poll.go       one poll of one device
//	record.go     the record of the polls of one device
//	result.go     the same for people and metrics
//	last.go       the newest result of one host, for explain
//	finding.go    weaknesses that the sweep finds itself; also password.go
//	order.go      polls that a person orders: fencectl bmc test and audit
//
// Many hung BMCs must not delay the others. A poll holds its slot for a limited
// time. Devices that failed share at most half of the slots, and are polled less
// and less often.
package sweep
