package bmc

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

const (
	asIs     = "4c4c4544-0051-4d10-8059-b4c04f563733"
	swapped  = "44454c4c-5100-104d-8059-b4c04f563733"
	reversed = "3337564f-c0b4-5980-104d-510044454c4c"
)

func TestUUIDsMatch(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		want       bool
	}{
		{"as is", asIs, asIs, true},
		{"first three fields swapped", asIs, swapped, true},
		{"fully reversed", asIs, reversed, true},
		{"upper case, no dashes, spaces around", asIs, " 4C4C454400514D108059B4C04F563733\n", true},
		{"one digit differs", asIs, "4c4c4544-0051-4d10-8059-b4c04f563734", false},
		{"swapped against reversed are not one step apart", swapped, reversed, false},
		{"only one field swapped", asIs, "44454c4c-0051-4d10-8059-b4c04f563733", false},
		{"empty", "", "", false},
		{"too short", asIs[:30], asIs[:30], false},
		{"too long", asIs + "00", asIs + "00", false},
		{"not hex", "zc4c4544-0051-4d10-8059-b4c04f563733", "zc4c4544-0051-4d10-8059-b4c04f563733", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, UUIDsMatch(c.a, c.b))
			assert.Equal(t, c.want, UUIDsMatch(c.b, c.a), "the other way round")
		})
	}
}

func TestPlaceholdersIdentifyNothing(t *testing.T) {
	for _, s := range []string{
		"00000000-0000-0000-0000-000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff",
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
		"20202020-2020-2020-2020-202020202020",
		"00010203-0405-0607-0809-0a0b0c0d0e0f",
		"03020100-0504-0706-0809-0a0b0c0d0e0f", // counting, fields swapped
		"0f0e0d0c-0b0a-0908-0706-050403020100", // counting, reversed
		"01020304-0506-0708-090a-0b0c0d0e0f10",
		"03000200-0400-0500-0006-000700080009", // AMI
		"00020003-0004-0005-0006-000700080009",
		"12345678-1234-5678-9012-345678901234",
		"12345678-1234-1234-1234-123456789abc",
		"12345678-1234-5678-90ab-cddeefaabbcc",
		"fefefefe-fefe-fefe-fefe-fefefefefefe",
		"88888888-8888-8888-8888-878888888888",
		"00000000-0000-0000-0000-000000000001",
		"ffffffff-0000-0000-ffff-ffff00000000",
		"4c4c4544-00c1-ffff-ffff-ffffffffffff",
		"4c4c4544-0000-2010-8020-80c04f202020", // Dell, no service tag
		"44454c4c-0000-1020-8020-80c04f202020", // the same, fields swapped
		"537b004d-68b0-b59f-1410-8d5300b3b56a", // 6ab5b300-..., reversed
	} {
		assert.False(t, UsableUUID(s), s)
		assert.False(t, UUIDsMatch(s, s), s)
		assert.Empty(t, UUIDForms(s), s)
	}
	for _, s := range []string{
		asIs,
		"00000000-0000-0000-0000-002590c7c0ab", // Supermicro: zeros and the MAC address
		"76006b9c-c49c-0000-0000-000000000000", // ASRock: the MAC address and zeros
		"00000000-0000-00A0-0000-000000000001", // server profiles, numbered from a pool
		"00000000-0000-00A0-0000-000000000010",
		"00000000-0000-0000-0000-00000000000a",
	} {
		assert.True(t, UsableUUID(s), s)
	}
}

// TestUUIDLaw: exactly the three forms of a usable UUID match it, and UUIDForms
// gives them.
func TestUUIDLaw(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		a := hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "a"))
		b := hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "b"))
		if !UsableUUID(a) {
			return
		}
		forms := UUIDForms(a)
		if len(forms) != 3 || forms[0] != a {
			t.Fatalf("forms of %s: %v", a, forms)
		}
		for _, f := range forms {
			if !UUIDsMatch(a, f) || !UUIDsMatch(f, a) || !UsableUUID(f) {
				t.Fatalf("%s does not match its form %s", a, f)
			}
		}
		if UUIDsMatch(a, b) != (b == forms[0] || b == forms[1] || b == forms[2]) {
			t.Fatalf("%s against %s", a, b)
		}
	})
}

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

// Each factor that both sides know must agree; a placeholder is not known. // I8
func TestSameHardware(t *testing.T) {
	const nic, lom, foreign = "b8:ca:3a:00:00:01", "b8:ca:3a:00:00:02", "b8:ca:3a:00:00:99"
	for name, c := range map[string]struct {
		inventory, reported Hardware
		same, differs       bool
	}{
		"the serial number":              {Hardware{Serial: "ABC1234"}, Hardware{Serial: " abc 1234"}, true, false},
		"another serial number":          {Hardware{Serial: "ABC1234"}, Hardware{Serial: "ABC1235"}, false, true},
		"one side has none":              {Hardware{Serial: "ABC1234"}, Hardware{}, false, false},
		"To be filled by O.E.M.":         {Hardware{Serial: "To be filled by O.E.M."}, Hardware{Serial: "To be filled by O.E.M."}, false, false},
		"0123456789":                     {Hardware{Serial: "0123456789"}, Hardware{Serial: "0123456789"}, false, false},
		"None":                           {Hardware{Serial: "None"}, Hardware{Serial: "None"}, false, false},
		"all that it reports":            {Hardware{MACs: []string{nic, lom}}, Hardware{MACs: []string{"B8-CA-3A-00-00-01"}}, true, false},
		"a card of another machine":      {Hardware{MACs: []string{nic, lom}}, Hardware{MACs: []string{nic, foreign}}, false, false},
		"none in common":                 {Hardware{MACs: []string{nic, lom}}, Hardware{MACs: []string{foreign}}, false, true},
		"the USB network of the BMC":     {Hardware{MACs: []string{"b0:3a:f2:b6:05:9f"}}, Hardware{MACs: []string{"b0:3a:f2:b6:05:9f"}}, false, false},
		"a local address":                {Hardware{MACs: []string{"02:00:00:00:00:01"}}, Hardware{MACs: []string{"02:00:00:00:00:01"}}, false, false},
		"a serial number of the chassis": {Hardware{Serial: "ABC1234", MACs: []string{nic}}, Hardware{Serial: "ABC1234", MACs: []string{foreign}}, false, true},
		"both":                           {Hardware{Serial: "ABC1234", MACs: []string{nic}}, Hardware{Serial: "ABC1234", MACs: []string{nic, foreign}}, true, false},
		"the MACs, but another serial":   {Hardware{Serial: "ABC1234", MACs: []string{nic}}, Hardware{Serial: "ABC1235", MACs: []string{nic}}, false, true},
		"nothing":                        {Hardware{}, Hardware{}, false, false},
	} {
		same, differs, why := SameHardware(c.inventory, c.reported)
		assert.Equal(t, c.same, same, name)
		assert.Equal(t, c.differs, differs, name)
		assert.NotEmpty(t, why, name)
	}
}
