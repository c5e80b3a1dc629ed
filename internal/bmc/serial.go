package bmc

import (
	"slices"
	"strings"
	"unicode"
)

// SerialsMatch compares two serial numbers of a host, the second factor of its
// identity. known is false if either is missing or a placeholder that many
// machines share; match is then false. // I8
func SerialsMatch(a, b string) (match, known bool) {
	x, y := normalSerial(a), normalSerial(b)
	if !isRealSerial(x) || !isRealSerial(y) {
		return false, false
	}
	return x == y, true
}

// NormalizeSerial returns a serial number as SerialsMatch compares it. ok is false for a
// placeholder.
func NormalizeSerial(s string) (serial string, ok bool) {
	serial = normalSerial(s)
	return serial, isRealSerial(serial)
}

// UsableSerial reports whether s can identify a machine.
func UsableSerial(s string) bool { return isRealSerial(normalSerial(s)) }

// normalSerial drops case, blanks and unprintable characters.
func normalSerial(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
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

// isRealSerial reports whether s, already normalized, is a machine's own: not a
// placeholder, not one repeated character, not a sequence.
func isRealSerial(s string) bool {
	if len(s) < minSerialLength || slices.Contains(sharedSerials, s) {
		return false
	}
	for _, word := range sharedWords {
		if strings.Contains(s, word) {
			return false
		}
	}
	for _, prefix := range []string{"sys-", "sn-", "mb-"} {
		s = strings.TrimPrefix(s, prefix)
	}
	s = strings.Trim(s, "-_./:*#?")
	return len(s) >= minSerialLength && strings.Count(s, s[:1]) != len(s) && !isSequence(s)
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
