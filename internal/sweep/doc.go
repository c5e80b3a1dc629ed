// Package sweep looks at every BMC of the inventory, again and again, so that a
// dead one is known before it is needed. It only reads, it makes way for runs,
// and it closes what it opened.
//
//	sweep.go      what it is made from, and the loop
//	inventory.go  the devices as they come, change and go
//	schedule.go   which device is asked when, and which must wait; pure
//	account.go    an account that was refused is left alone, and a BMC that moved
//	ask.go        one look at one device
//	record.go     what the looks at one device add up to
//	result.go     the same for people and metrics
//	finding.go    weaknesses that the sweep sees by itself; password.go
//	order.go      a look that a person orders: fencectl bmc test and audit
//
// Many hung BMCs must not delay the others: a look holds its slot for a bounded
// time, devices that failed share at most half of the slots, and are asked less
// and less often.
package sweep
