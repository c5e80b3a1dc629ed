package bmc

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Identity is who answered: the system UUID, as text or as the GUID's bytes in
// hex, in the byte order of the BMC.
type Identity struct {
	UUID   string
	Serial string
	// System is the path of a Redfish system whose UUID identifies no host; empty for
	// every other device.
	System string
}

// UUIDsMatch reports whether a and b are the same system UUID. SMBIOS, BMCs and
// nodeInfo use three byte orders: unchanged, with the first three fields swapped,
// and fully reversed. Placeholders never match, nor does anything that is not 16
// bytes of hex. // I8
func UUIDsMatch(a, b string) bool {
	x, ok := parseUUID(a)
	if !ok { // as mostly, where it is not known
		return false
	}
	y, ok := parseUUID(b)
	forms := x.Forms()
	return ok && slices.Contains(forms[:], y) && !isPlaceholder(x) && !isPlaceholder(y)
}

// UUIDForms returns the texts, in hex, that UUIDsMatch accepts for s, first s
// itself; none if s cannot identify a machine. An index of them finds duplicates. // I9
func UUIDForms(s string) []string {
	u, ok := ParseUUID(s)
	if !ok {
		return nil
	}
	var forms []string
	for _, f := range u.Forms() {
		forms = append(forms, hex.EncodeToString(f[:]))
	}
	return forms
}

// UUID is one that identifies a machine, in one byte order. As a key it takes half of what its text takes.
type UUID [16]byte

// ParseUUID returns the UUID that a text says; false if that cannot identify a machine.
func ParseUUID(s string) (UUID, bool) {
	u, ok := parseUUID(s)
	return u, ok && !isPlaceholder(u)
}

// UsableUUID reports whether s can identify a machine.
func UsableUUID(s string) bool {
	u, ok := parseUUID(s)
	return ok && !isPlaceholder(u)
}

// PlaceholderUUID reports whether s is none, or one that vendors give to many machines: two machines
// may both have it.
func PlaceholderUUID(s string) bool {
	u, ok := parseUUID(s)
	return strings.TrimSpace(s) == "" || ok && isPlaceholder(u)
}

func parseUUID(s string) (u UUID, ok bool) {
	digits, n := [2 * len(u)]byte{}, 0 // it is parsed for each of a hundred thousand Nodes, without an allocation
	for _, c := range []byte(strings.TrimSpace(s)) {
		switch {
		case c == '-':
			continue
		case n == len(digits):
			return u, false
		}
		digits[n] = c
		n++
	}
	if n < len(digits) {
		return u, false
	}
	_, err := hex.Decode(u[:], digits[:])
	return u, err == nil
}

// placeholders are the known UUIDs that identify no machine: what boards and images ship with if nobody
// wrote a real one, as found in inventories and boot loaders, and what people type in its place. A value is
// added here once it was seen on several machines. No pattern decides: server-profile pools number from zero,
// and 00000000-0000-00A0-0000-000000000001 is a machine's own.
var placeholders = parseAll(
	"03000200-0400-0500-0006-000700080009", // AMI
	"07090201-0103-0301-0807-060504030201",
	"00000000-0000-0000-0000-000000000001",
	"00010203-0405-0607-0809-0a0b0c0d0e0f",
	"01020304-0506-0708-090a-0b0c0d0e0f10",
	"12345678-1234-1234-1234-123456789abc",
	"12345678-1234-5678-9012-345678901234",
	"12345678-1234-5678-90ab-cddeefaabbcc", // Insyde
	"11111111-2222-3333-4444-555555555555",
	"4c4c4544-0000-2010-8020-80c04f202020", // Dell, without a service tag
	"4c4c4544-0020-2010-8020-a0c04f202020", // the same
	"4c4c4544-00c1-ffff-ffff-ffffffffffff",
	"6ab5b300-538d-1014-9fb5-b0684d007b53",
	"88888888-8888-8888-8888-878888888888",
	"890e2d14-cacd-45d1-ae66-bc80e8bfeb0f",
	"8a95d198-7f46-11e5-bf8b-08002704d48e", // ARM reference firmware
	"8e275844-178f-44a8-aceb-a7d7e5178c63",
	"dc698397-fa54-4cf2-82c8-b1b5307a6a7f",
	"ffffffff-0000-0000-ffff-ffff00000000",
)

// Forms are a UUID as it is, with the first three fields reversed (the mixed-endian form of
// SMBIOS 2.6 and later), and with all bytes reversed.
func (u UUID) Forms() [3]UUID {
	swapped, reversed := u, u
	slices.Reverse(swapped[:4])
	slices.Reverse(swapped[4:6])
	slices.Reverse(swapped[6:8])
	slices.Reverse(reversed[:])
	return [3]UUID{u, swapped, reversed}
}

// isPlaceholder reports whether u is a value that many machines share: a known one, in any byte order, or
// sixteen equal bytes. // I8
func isPlaceholder(u UUID) bool {
	for _, form := range u.Forms() {
		if placeholders[form] {
			return true
		}
	}
	return bytes.Count(u[:], u[:1]) == len(u)
}

func parseAll(texts ...string) map[UUID]bool {
	all := map[UUID]bool{}
	for _, s := range texts {
		u, ok := parseUUID(s)
		if !ok {
			panic("bmc: the default UUID " + s + " is not 16 bytes of hex")
		}
		all[u] = true
	}
	return all
}

// SerialsMatch compares two serial numbers of a host, the second factor of its
// identity. known is false if either is missing or a placeholder that many
// machines share; match is then false. // I8
func SerialsMatch(a, b string) (match, known bool) {
	x, ok := NormalizeSerial(a)
	y, both := NormalizeSerial(b)
	known = ok && both
	return known && x == y, known
}

// UsableSerial reports whether s can identify a machine.
func UsableSerial(s string) bool {
	_, ok := NormalizeSerial(s)
	return ok
}

// sharedSerials are the placeholders of firmware without a serial number, in
// lower case and without blanks.
var sharedSerials = []string{
	"n/a", "none", "null", "(null)", "(nullstring)", "empty", "invalid", "unknow", "unknown", "unspecified",
	"notspecified", "notapplicable", "notavailable", "notpresent", "notset", "notsettable", "notdefined", "undefined", "default",
	"eval", "iatpass", "systemserialnumb", "oem_serial", "tulipcomputers", "sys-9876543210", "sn-123456fvgv3i0b8o5n6n7k",
	"123456789000", "123456789abcdef", "0123456789abcdef", "12345abcde", "abcdefghij",
}

// sharedWords are parts that no real serial number has.
var sharedWords = []string{"tobefilled", "filledbyo", "defaultstring", "default_string", "serialnumber", "serial_number", "o.e.m"}

// minSerialLength is the length of the shortest valid serial number.
const minSerialLength = 4

// NormalizeSerial returns a serial number as SerialsMatch compares it: without case, blanks and
// unprintable characters. ok is false unless it is a machine's own: not a placeholder, not one
// repeated character, not a sequence.
func NormalizeSerial(s string) (serial string, ok bool) {
	serial = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
	if len(serial) < minSerialLength || slices.Contains(sharedSerials, serial) {
		return serial, false
	}
	own := serial
	for _, word := range sharedWords {
		if strings.Contains(own, word) {
			return serial, false
		}
	}
	for _, prefix := range []string{"sys-", "sn-", "mb-"} {
		own = strings.TrimPrefix(own, prefix)
	}
	own = strings.Trim(own, "-_./:*#?")
	return serial, len(own) >= minSerialLength && strings.Count(own, own[:1]) != len(own) && !isSequence(own)
}

// isSequence reports whether s is a sequence of consecutive digits.
func isSequence(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' || i > 0 && s[i] != '0'+(s[i-1]-'0'+1)%10 {
			return false
		}
	}
	return true
}

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

var macSeparators = strings.NewReplacer(":", "", "-", "", ".", "")

// NormalizeMAC returns a hardware address in lower case with colons. ok is false
// for an address that does not identify a machine (group, locally administered,
// zero, or shared by many), and for a text that is no address.
func NormalizeMAC(s string) (mac string, ok bool) {
	digits := macSeparators.Replace(strings.TrimSpace(s))
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

// Hardware is what identifies a machine other than its UUID.
type Hardware struct {
	Serial   string
	MACs     []string
	SomeMACs bool // there may be more of them
}

// SameHardware reports whether the hardware that a BMC reports is that of an inventory.
// why says what they have in common, or what speaks against it. differs is
// true if they contradict each other. // I8
//
// Each factor that both sides know must agree, because some makers write one serial
// number into all nodes of a chassis. MAC addresses alone are enough only if the
// inventory has every one of the machine: a network card may have come from another
// one. So they are not enough where the BMC told only some. A placeholder is not known.
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
	case bothMACs && len(foreign) == 0 && reported.SomeMACs:
		return false, false, "it reports the MAC addresses " + strings.Join(usableMACs(reported.MACs), ", ") +
			", which the inventory has, but not all of its network interfaces could be read"
	case bothMACs && len(foreign) == 0:
		return true, false, "the MAC addresses " + strings.Join(usableMACs(reported.MACs), ", ")
	case bothMACs:
		return false, false, "the inventory lacks the MAC addresses " + strings.Join(foreign, ", ") + ", which it reports"
	}
	return false, false, "it and the inventory have no serial number and no MAC address in common that identifies a machine"
}
