package bmc

import (
	"encoding/hex"
	"slices"
	"strings"
)

// sharedMACs are addresses that many machines have: those of the network
// interface over USB to the BMC, and those of software.
var sharedMACs = []string{
	"b0:3a:f2:b6:05:9f", // USB to the BMC, Supermicro
	"00:05:9a:3c:7a:00", // a VPN client
	"00:0b:ca:fe:00:00",
	"20:41:53:59:4e:ff",
	"24:b6:20:52:41:53",
	"44:45:53:54:61:6f",
	"50:50:54:50:30:30",
	"00:11:11:85:08:8b",
}

// sharedPrefixes are the prefixes of addresses that software assigns to the same
// interfaces on every machine.
var sharedPrefixes = []string{
	"00:50:56:c0:", // VMware's networks inside one host
	"44:45:53:54:", // dial-up adapters
}

// NormalizeMAC returns a hardware address in lower case with colons. ok is false
// for an address that does not identify a machine (group, locally administered,
// zero, or shared by many), and for a text that is no address.
func NormalizeMAC(s string) (mac string, ok bool) {
	digits := strings.NewReplacer(":", "", "-", "", ".", "").Replace(strings.TrimSpace(s))
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != 6 {
		return "", false
	}
	if b[0]&3 != 0 { // group or locally administered, IEEE 802
		return "", false
	}
	if low := [3]byte(b[3:]); low == [3]byte{} || low == [3]byte{0xff, 0xff, 0xff} {
		return "", false
	}
	pairs := make([]string, len(b))
	for i := range b {
		pairs[i] = hex.EncodeToString(b[i : i+1])
	}
	mac = strings.Join(pairs, ":")
	shared := slices.Contains(sharedMACs, mac) ||
		slices.ContainsFunc(sharedPrefixes, func(p string) bool { return strings.HasPrefix(mac, p) })
	if shared {
		return "", false
	}
	return mac, true
}

// MACsMatch compares the hardware addresses of a host from two sources. known is
// false if either source has none that identifies a machine. They match if they
// have an address in common. // I8
func MACsMatch(a, b []string) (match, known bool) {
	x, y := usableMACs(a), usableMACs(b)
	match = slices.ContainsFunc(x, func(mac string) bool { return slices.Contains(y, mac) })
	return match, len(x) > 0 && len(y) > 0
}

func usableMACs(all []string) []string {
	var usable []string
	for _, s := range all {
		if mac, ok := NormalizeMAC(s); ok {
			usable = append(usable, mac)
		}
	}
	return usable
}
