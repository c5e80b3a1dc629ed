// Package hosts knows which machine a host is, how its power is reached, and what the evidence
// for both is. It joins what administrators wrote in hosts.d, what BareMetalHosts say, what BMCs
// reported, what was pinned while a host was healthy, and what a person enrolled. // I8, I9, I10
//
// It also knows which hosts must never be switched off: those whose BMC reported a false Off
// (frozen), those that exist twice, and the host that the daemon runs on. // I5, I13
package hosts
