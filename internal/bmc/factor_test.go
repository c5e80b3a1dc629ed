package bmc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

func TestSerialsMatch(t *testing.T) {
	for _, c := range []struct {
		name, a, b   string
		match, known bool
	}{
		{"the same", "J4ZQX13", "J4ZQX13", true, true},
		{"case and blanks", " j4zqx13\t", "J4Z QX13\n", true, true},
		{"a NUL at the end", "J4ZQX13\x00", "J4ZQX13", true, true},
		{"another", "J4ZQX13", "J4ZQX14", false, true},
		{"one is missing", "J4ZQX13", "", false, false},
		{"both are missing", "", "", false, false},
		{"one is a placeholder", "J4ZQX13", "Default string", false, false},
		{"both are the same placeholder", "To Be Filled By O.E.M.", "To Be Filled By O.E.M.", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
				match, known := SerialsMatch(pair[0], pair[1])
				assert.Equal(t, c.match, match)
				assert.Equal(t, c.known, known)
			}
		})
	}
}

func TestPlaceholderSerials(t *testing.T) {
	for _, s := range []string{
		"", " ", "0", "1", "...", "N/A", "None", "NULL", "(null string)", "INVALID", "empty", "Unknow", "Unknown", "Not Specified", "Not Applicable",
		"To Be Filled By O.E.M.", "To be filled by OEM", "Default string", "Default_string", "System Serial Number", "SystemSerialNumb",
		"Chassis Serial Number", "Base Board Serial Number", "Serial Number xxxxxx", "SYS-1234567890", "SYS-9876543210", "SN-12345", "SN-1234567890",
		"MB-1234567890", "0000000", "0000000000", "1111111111", "xxxxxxxxxxx", "NNNNNNN", "EVAL", "0123456789", "12345", "123456789",
		"1234567890", "12345678901234567", "123456789000", "........", "--------", "\x00\x00\x00\x00", "OEM_Serial", "0123456789ABCDEF",
	} {
		assert.False(t, UsableSerial(s), "%q", s)
	}
	for _, s := range []string{"J4ZQX13", "CZ20430ABC", "SGH423XYZ1", "S415566X9C12345", "06AB123", "VMware-564da6d2", "SN-7F3K9", "12346789", "VM-1234"} {
		assert.True(t, UsableSerial(s), "%q", s)
	}
}

func TestNormalizeMAC(t *testing.T) {
	for in, want := range map[string]string{
		"3c:ec:ef:2c:f5:54":   "3c:ec:ef:2c:f5:54",
		" 3C-EC-EF-2C-F5-54 ": "3c:ec:ef:2c:f5:54",
		"3cec.ef2c.f554":      "3c:ec:ef:2c:f5:54",
		"3CECEF2CF554":        "3c:ec:ef:2c:f5:54",
		"":                    "",
		"3c:ec:ef:2c:f5":      "",
		"3c:ec:ef:2c:f5:54:0": "",
		"zc:ec:ef:2c:f5:54":   "",
		"00:00:00:00:00:00":   "",
		"ff:ff:ff:ff:ff:ff":   "",
		"01:00:5e:00:00:01":   "", // group
		"02:42:ac:11:00:02":   "", // locally administered
		"fe:54:00:12:34:56":   "",
		"00:a0:c6:00:00:00":   "", // nobody wrote the last three
		"b0:3a:f2:b6:05:9f":   "",
		"00:50:56:C0:00:08":   "",
		"00:50:56:12:34:56":   "00:50:56:12:34:56",
	} {
		got, ok := NormalizeMAC(in)
		assert.Equal(t, want, got, in)
		assert.Equal(t, want != "", ok, in)
	}
}

func TestMACsMatch(t *testing.T) {
	const a, b, docker = "3c:ec:ef:2c:f5:54", "3c:ec:ef:2c:f5:55", "02:42:ac:11:00:02"
	for _, c := range []struct {
		name         string
		x, y         []string
		match, known bool
	}{
		{"one in common", []string{a, b}, []string{strings.ToUpper(b)}, true, true},
		{"none in common", []string{a}, []string{b}, false, true},
		{"only a local one in common", []string{docker}, []string{docker}, false, false},
		{"a local one in common beside others", []string{docker, a}, []string{docker, b}, false, true},
		{"one side tells none", []string{a}, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			match, known := MACsMatch(c.x, c.y)
			assert.Equal(t, c.match, match)
			assert.Equal(t, c.known, known)
		})
	}
}

// TestFactorLaw: what is not known never matches, and the order of the two
// sides does not matter.
func TestFactorLaw(t *testing.T) {
	serial := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"J4ZQX13", "j4z qx13", "None", "0000", "12345"}))
	law.Check(t, func(t *rapid.T) {
		a, b := serial.Draw(t, "a"), serial.Draw(t, "b")
		match, known := SerialsMatch(a, b)
		match2, known2 := SerialsMatch(b, a)
		if match && !known || match != match2 || known != known2 {
			t.Fatalf("%q against %q: %v %v, the other way %v %v", a, b, match, known, match2, known2)
		}
		if known != (UsableSerial(a) && UsableSerial(b)) {
			t.Fatalf("%q against %q: known %v", a, b, known)
		}
		mac, ok := NormalizeMAC(a)
		if again, okAgain := NormalizeMAC(mac); ok && (!okAgain || again != mac) {
			t.Fatalf("%q is not its own normal form", mac)
		}
	})
}
