// Package redfishsim gives tests and the demo a Redfish service over real TLS
// on loopback, with hosts behind it that we control and faults that can be
// switched while it runs.
//
// A Server has one System unless told otherwise; its Power, SetPower, IgnoreOff
// and LieOff have the same form as those of test/ipmisim, so that a rig can hold
// either. What a BMC does wrong is one value, Faults (the service) or Quirks
// (one system); Server.Requests says what clients really asked, OpenSessions what
// they left behind, and Restart is what a BMC does when it is tired of them.
//
// Nothing here depends on package testing, so that the demo can use it too.
package redfishsim
