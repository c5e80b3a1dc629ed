// Package power measures what it costs to make certain that a host is off, by
// fenced's own clients of IPMI and Redfish and by what people use in their place:
// ipmitool, bmclib, fence_ipmilan and fence_redfish, on the same simulated BMCs.
//
// Each contestant runs in a process of its own, a worker, so that the kernel
// accounts for it and its children alone; BMCs, relays and this package's Measure
// are in another. The files in the order of a measurement: power.go runs it,
// simulator.go are the BMCs, contest.go the rounds, contestant.go and worker.go
// the two ends of a worker, own.go, ipmitool.go, agent.go and library.go what
// it does, bound.go our own times against those of the protocol, scale.go a
// thousand BMCs, print.go the tables.
package power
