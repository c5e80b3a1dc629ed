package bmc

import (
	"fmt"
	"net/netip"
	"strings"
)

// scheme is what the first word of an address says.
type scheme struct {
	protocol Protocol
	// pathIsOther: what Metal3 reads from the path is not the system of a Redfish
	// service, so only a path that plainly is one is taken for it.
	pathIsOther bool
	// portIsOther: the port is that of another protocol.
	portIsOther bool
}

// schemes are the address schemes of Metal3, old ones included, and the protocol
// that drives power behind each.
var schemes = map[string]scheme{
	"ipmi": {protocol: ProtocolIPMI}, "libvirt": {protocol: ProtocolIPMI},
	"redfish": {protocol: ProtocolRedfish}, "redfish-virtualmedia": {protocol: ProtocolRedfish}, "redfish-uefihttp": {protocol: ProtocolRedfish},
	"ilo5-redfish": {protocol: ProtocolRedfish}, "ilo5-virtualmedia": {protocol: ProtocolRedfish},
	"idrac-redfish": {protocol: ProtocolRedfish}, "idrac-virtualmedia": {protocol: ProtocolRedfish},

	// Metal3 removed these, and old clusters still have them. Each of these BMCs
	// has a Redfish service on the web server that the old protocol used.
	"idrac": {protocol: ProtocolRedfish, pathIsOther: true}, // WS-Management
	"ibmc":  {protocol: ProtocolRedfish, pathIsOther: true},
	"ilo4":  {protocol: ProtocolRedfish, pathIsOther: true}, "ilo4-virtualmedia": {protocol: ProtocolRedfish, pathIsOther: true},
	"ilo5": {protocol: ProtocolRedfish, pathIsOther: true},
	// Metal3 switched an iRMC by IPMI at the host of the address; the port of the
	// address was that of its SCCI, and of nothing that switches power.
	"irmc": {protocol: ProtocolIPMI, portIsOther: true},

	// As fenced writes a Redfish address itself.
	"https": {protocol: ProtocolRedfish}, "http": {protocol: ProtocolRedfish},
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
	s, ok = schemes[name]
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
		return "", fmt.Errorf("BMC address %s: %s", shown(address), unknownScheme(first))
	}
	if strings.HasPrefix(rest, "//") {
		return address, nil
	}
	return "ipmi://" + address, nil
}

// unknownScheme is the refusal of a scheme that nothing here drives.
func unknownScheme(name string) string {
	return fmt.Sprintf("unknown scheme %q; write ipmi://HOST or redfish://HOST/redfish/v1/Systems/ID, or a variant of these that Metal3 has", shown(name))
}

func isAddr(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
