package bmc

import (
	"fmt"
	"slices"
	"strings"
)

// Hardware is what identifies a machine other than its UUID.
type Hardware struct {
	Serial string
	MACs   []string
}

// SameHardware reports whether the hardware that a BMC reports is that of an inventory.
// why says what they have in common, or why they are not known to be the same. differs is
// true if they contradict each other. // I8
//
// Each factor that both sides know must agree, because some makers write one serial
// number into all nodes of a chassis. MAC addresses alone are enough only if the
// inventory has every one that the BMC reports: a network card may have come from
// another machine. A placeholder is not known.
func SameHardware(inventory, reported Hardware) (same, differs bool, why string) {
	sameSerial, bothSerials := SerialsMatch(inventory.Serial, reported.Serial)
	anyMAC, bothMACs := MACsMatch(inventory.MACs, reported.MACs)
	foreign := slices.DeleteFunc(usableMACs(reported.MACs), func(mac string) bool { return slices.Contains(usableMACs(inventory.MACs), mac) })
	switch {
	case bothSerials && !sameSerial:
		return false, true, fmt.Sprintf("it reports the serial number %q, and the inventory has %q", reported.Serial, inventory.Serial)
	case bothMACs && !anyMAC:
		return false, true, "it reports the MAC addresses " + strings.Join(reported.MACs, ", ") + ", and the inventory has " + strings.Join(inventory.MACs, ", ")
	case bothSerials:
		return true, false, fmt.Sprintf("the serial number %q", reported.Serial)
	case bothMACs && len(foreign) == 0:
		return true, false, "the MAC addresses " + strings.Join(usableMACs(reported.MACs), ", ")
	case bothMACs:
		return false, false, "the inventory lacks the MAC addresses " + strings.Join(foreign, ", ") + ", which it reports"
	}
	return false, false, "it and the inventory have no serial number and no MAC address in common that identifies a machine"
}
