package bmc

import (
	"encoding/hex"
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
