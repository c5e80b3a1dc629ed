package bmc

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// scheme is the meaning of the scheme of an address.
type scheme struct {
	protocol Protocol
	// port is the port of the protocol; 0 means that of http or https.
	port int
	// pathIsOther: in Metal3 the path does not name the system of a Redfish
	// service, so only a path that clearly does is used.
	pathIsOther bool
	// portIsOther: the port is that of another protocol.
	portIsOther bool
}

// Schemes lists the address schemes: those of Metal3, including old ones, and
// those of the drivers.
func Schemes() (all []string) {
	for _, d := range descriptors {
		all = slices.AppendSeq(all, maps.Keys(d.schemes))
	}
	slices.Sort(all)
	return all
}

// knownScheme finds the scheme before the optional +http or +https.
func knownScheme(text string) (s scheme, transport string, ok bool) {
	name, transport, plus := strings.Cut(strings.ToLower(text), "+")
	if name == "http" || name == "https" {
		if plus {
			return scheme{}, "", false
		}
		transport = name
	}
	for _, d := range descriptors {
		if s, ok = d.schemes[name]; ok {
			break
		}
	}
	return s, transport, ok
}

// withScheme completes the short forms: a host alone means IPMI, and a known
// scheme may lack its slashes. As in Metal3, a name with a port needs a scheme,
// because the name would be parsed as one.
func withScheme(address string) (string, error) {
	first, rest, colon := strings.Cut(address, ":")
	switch _, _, known := knownScheme(first); {
	case !colon, strings.HasPrefix(rest, "//"), strings.HasPrefix(address, "["):
	case known:
		return first + "://" + rest, nil
	case isAddr(address): // colons of an IPv6 address
		return "", fmt.Errorf("BMC address %[1]s: an IPv6 address needs brackets; write ipmi://[%[1]s]", address)
	case isAddr(first):
	case rest != "" && strings.Trim(rest, "0123456789") == "" && validHost(first):
		return "", fmt.Errorf("BMC address %[1]s: a name with a port needs a scheme; write ipmi://%[1]s", address)
	default:
		return "", fmt.Errorf("BMC address %s: %s", RedactAddress(address), unknownScheme(first))
	}
	if strings.HasPrefix(rest, "//") {
		return address, nil
	}
	return "ipmi://" + address, nil
}

// unknownScheme is the error text for a scheme that no driver supports.
func unknownScheme(name string) string {
	return fmt.Sprintf("unknown scheme %q; write ipmi://HOST or redfish://HOST/redfish/v1/Systems/ID, or a variant that Metal3 supports", RedactAddress(name))
}

func isAddr(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
