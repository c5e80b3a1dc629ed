package bmc

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// scheme is what the first word of an address says.
type scheme struct {
	protocol Protocol
	// port is where the protocol is spoken; 0 = on a web server, by http or https.
	port int
	// pathIsOther: what Metal3 reads from the path is not the system of a Redfish
	// service, so only a path that plainly is one is taken for it.
	pathIsOther bool
	// portIsOther: the port is that of another protocol.
	portIsOther bool
}

// Schemes lists the schemes of addresses: those of Metal3, old ones included, and what
// drivers call their own.
func Schemes() (all []string) {
	for _, d := range descriptors {
		all = slices.AppendSeq(all, maps.Keys(d.schemes))
	}
	slices.Sort(all)
	return all
}

// knownScheme finds the scheme in front of the optional +http or +https.
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

// withScheme completes the short forms: a bare host is IPMI, and a known scheme
// may lack its slashes. As in Metal3, a name with a port needs a scheme: its
// name would be one.
func withScheme(address string) (string, error) {
	first, rest, colon := strings.Cut(address, ":")
	switch _, _, known := knownScheme(first); {
	case !colon, strings.HasPrefix(rest, "//"), strings.HasPrefix(address, "["):
	case known:
		return first + "://" + rest, nil
	case isAddr(address): // the colons are of an IPv6 address
		return "", fmt.Errorf("BMC address %[1]s: an IPv6 address stands in brackets; write ipmi://[%[1]s]", address)
	case isAddr(first):
	case rest != "" && strings.Trim(rest, "0123456789") == "" && validHost(first):
		return "", fmt.Errorf("BMC address %[1]s: a name with a port needs a scheme; write ipmi://%[1]s", address)
	default:
		return "", fmt.Errorf("BMC address %s: %s", redactAddress(address), unknownScheme(first))
	}
	if strings.HasPrefix(rest, "//") {
		return address, nil
	}
	return "ipmi://" + address, nil
}

// unknownScheme is the refusal of a scheme that nothing here drives.
func unknownScheme(name string) string {
	return fmt.Sprintf("unknown scheme %q; write ipmi://HOST or redfish://HOST/redfish/v1/Systems/ID, or a variant of these that Metal3 has", redactAddress(name))
}

func isAddr(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
