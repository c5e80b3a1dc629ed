// Package power measures what it costs to make certain that a host is off, by
// fenced's own clients of IPMI and Redfish and by what people use in their place:
// ipmitool, bmclib, fence_ipmilan and fence_redfish, on the same simulated BMCs.
//
// Each contestant runs in a process of its own, a worker, so that the kernel
// accounts for it and its children alone; BMCs, relays and this package's Measure
// are in another. power.go runs a measurement and prints it, contestant.go has
// the contestants, worker.go what a worker does and one BMC, many.go a thousand
// hosts that are isolated at once, crowd.go the workers that do so.
package power
