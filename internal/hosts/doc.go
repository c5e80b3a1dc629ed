// Package hosts says which machine a host is, how its power is reached, and why that is
// believed. It joins what administrators wrote in hosts.d, what BareMetalHosts say, what
// BMCs told, what was pinned while all was well, and what a person enrolled. // I8, I9, I10
//
// It also knows which hosts must never be switched off: those whose BMC has lied (frozen),
// those that are there twice, and the host that the daemon runs on. // I5, I13
package hosts
