package bmc

import (
	"encoding/hex"
	"strings"
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

// Equal reports whether two readings have exactly the same identity.
func (i Identity) Equal(o Identity) bool { return i == o }

// UUIDsMatch reports whether a and b are the same system UUID. SMBIOS, BMCs and
// nodeInfo use three byte orders: unchanged, with the first three fields swapped,
// and fully reversed. Placeholders never match, nor does anything that is not 16
// bytes of hex. // I8
func UUIDsMatch(a, b string) bool {
	x, ok := parseUUID(a)
	if !ok || isPlaceholder(x) {
		return false
	}
	y, ok := parseUUID(b)
	if !ok || isPlaceholder(y) {
		return false
	}
	return x == y || swapFields(x) == y || reverse(x) == y
}

// UUIDForms returns the texts, in hex, that UUIDsMatch accepts for s, first s
// itself; none if s cannot identify a machine. An index of them finds duplicates. // I9
func UUIDForms(s string) []string {
	u, ok := parseUUID(s)
	if !ok || isPlaceholder(u) {
		return nil
	}
	var forms []string
	for _, f := range [][16]byte{u, swapFields(u), reverse(u)} {
		forms = append(forms, hex.EncodeToString(f[:]))
	}
	return forms
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

func parseUUID(s string) (u [16]byte, ok bool) {
	s = strings.ReplaceAll(strings.TrimSpace(s), "-", "")
	if len(s) != 32 {
		return u, false
	}
	_, err := hex.Decode(u[:], []byte(s))
	return u, err == nil
}

// swapFields reverses the first three fields of the UUID: the mixed-endian form
// of SMBIOS 2.6 and later.
func swapFields(u [16]byte) [16]byte {
	u[0], u[1], u[2], u[3] = u[3], u[2], u[1], u[0]
	u[4], u[5] = u[5], u[4]
	u[6], u[7] = u[7], u[6]
	return u
}

func reverse(u [16]byte) [16]byte {
	for i := range 8 {
		u[i], u[15-i] = u[15-i], u[i]
	}
	return u
}
