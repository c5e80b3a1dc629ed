// Package sweep is the BMC health check. It polls every BMC of the inventory
// periodically, so that a dead BMC is known before it is needed. It only reads,
// it gives way to runs, and it closes its sessions.
//
//	sweep.go     options, the loop, and devices that are added, changed and removed
//	schedule.go  which device is polled when
//	poll.go      one poll of one device; polls that a person orders
//	record.go    the record of the polls of one device
//	result.go    the same for people, metrics and explain
//	finding.go   weaknesses that the sweep finds itself
//
// Many hung BMCs must not delay the others. A poll holds its slot for a limited
// time. Devices that failed share at most half of the slots, and are polled less
// and less often.
package sweep
