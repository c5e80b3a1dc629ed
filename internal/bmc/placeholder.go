package bmc

// vendorDefaults are UUIDs that boards or images ship with if nobody wrote a real
// one, as found in inventories and boot loaders.
var vendorDefaults = parseAll(
	"03000200-0400-0500-0006-000700080009", // AMI
	"07090201-0103-0301-0807-060504030201",
	"12345678-1234-1234-1234-123456789abc",
	"12345678-1234-5678-9012-345678901234",
	"12345678-1234-5678-90ab-cddeefaabbcc", // Insyde
	"11111111-2222-3333-4444-555555555555",
	"4c4c4544-0000-2010-8020-80c04f202020", // Dell, without a service tag
	"4c4c4544-0020-2010-8020-a0c04f202020", // the same
	"6ab5b300-538d-1014-9fb5-b0684d007b53",
	"890e2d14-cacd-45d1-ae66-bc80e8bfeb0f",
	"8a95d198-7f46-11e5-bf8b-08002704d48e", // ARM reference firmware
	"8e275844-178f-44a8-aceb-a7d7e5178c63",
	"dc698397-fa54-4cf2-82c8-b1b5307a6a7f",
)

// maxPatternBytes is the greatest number of different bytes in a made-up UUID. A
// random UUID practically never has so few; one of zeros and a MAC address has
// more.
const maxPatternBytes = 3

// isPlaceholder reports whether u is a value that many machines share: a pattern,
// or a vendor's default, in any byte order. // I8
func isPlaceholder(u [16]byte) bool {
	for _, form := range [][16]byte{u, swapFields(u), reverse(u)} {
		if isPattern(form) || vendorDefaults[form] {
			return true
		}
	}
	return false
}

// isPattern reports whether u has few different bytes, counts up, or has only ff
// in its last ten bytes.
func isPattern(u [16]byte) bool {
	different := map[byte]bool{}
	counts, blank := true, true
	for i, b := range u {
		different[b] = true
		counts = counts && (i == 0 || b == u[i-1]+1)
		blank = blank && (i < 6 || b == 0xff)
	}
	return counts || blank || len(different) <= maxPatternBytes
}

func parseAll(texts ...string) map[[16]byte]bool {
	all := map[[16]byte]bool{}
	for _, s := range texts {
		u, ok := parseUUID(s)
		if !ok {
			panic("bmc: the default UUID " + s + " is not 16 bytes of hex")
		}
		all[u] = true
	}
	return all
}
