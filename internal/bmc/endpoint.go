package bmc

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Protocol is the wire protocol that drives a BMC.
type Protocol string

// The native protocols.
const (
	ProtocolIPMI    Protocol = "ipmi"
	ProtocolRedfish Protocol = "redfish"
)

// Endpoint is a parsed BMC address.
type Endpoint struct {
	Protocol Protocol
	Host     string // DNS name or IP without brackets
	Port     int    // 623 for IPMI, 443 or 80 for Redfish unless given
	Plain    bool   // Redfish over http
	System   string // Redfish path of the ComputerSystem; empty = discover the one
	// Privilege is the IPMI session privilege asked for: OPERATOR unless
	// privilegelevel= says otherwise.
	Privilege string
}

// String gives the address for people and logs, without any secret.
func (e Endpoint) String() string {
	hp := e.HostPort()
	if e.Protocol == ProtocolRedfish {
		return e.BaseURL() + e.System
	}
	return string(e.Protocol) + "://" + hp
}

// HostPort is the address to dial.
func (e Endpoint) HostPort() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// BaseURL is the scheme and authority of a Redfish service.
func (e Endpoint) BaseURL() string {
	if e.Plain {
		return "http://" + e.HostPort()
	}
	return "https://" + e.HostPort()
}

// schemes maps the address schemes of Metal3 (research: baremetal-operator
// pkg/hardwareutils/bmc) to the protocol that drives power behind them.
var schemes = map[string]Protocol{
	"ipmi": ProtocolIPMI, "libvirt": ProtocolIPMI,
	"redfish": ProtocolRedfish, "redfish-virtualmedia": ProtocolRedfish, "redfish-uefihttp": ProtocolRedfish,
	"ilo5-redfish": ProtocolRedfish, "ilo5-virtualmedia": ProtocolRedfish,
	"idrac-redfish": ProtocolRedfish, "idrac-virtualmedia": ProtocolRedfish,
}

// ParseEndpoint reads a BMC address as Metal3 writes it. Errors name the
// address and what would mend it.
func ParseEndpoint(address string) (Endpoint, error) {
	address = strings.TrimSpace(address)
	if address == "" {
		return Endpoint{}, fmt.Errorf("BMC address is empty; write for example ipmi://192.0.2.13 or redfish://192.0.2.13/redfish/v1/Systems/1")
	}
	u, err := url.Parse(withScheme(address))
	if err != nil || u.Opaque != "" {
		// url.Error repeats the text; user information must not be shown.
		return Endpoint{}, fmt.Errorf("BMC address does not parse as a URL; write SCHEME://HOST[:PORT][/PATH]")
	}
	scheme, transport, _ := strings.Cut(u.Scheme, "+")
	proto, ok := schemes[scheme]
	if !ok {
		return Endpoint{}, fmt.Errorf("BMC address %s: unknown scheme %q; ipmi and redfish (with the variants of Metal3) are known", shown(u), u.Scheme)
	}
	e := Endpoint{Protocol: proto, Host: u.Hostname(), Privilege: "OPERATOR"}
	if !validHost(e.Host) {
		return Endpoint{}, fmt.Errorf("BMC address %s: %q is neither an IP address nor a DNS name", shown(u), e.Host)
	}
	if err := e.setTransport(transport, u); err != nil {
		return Endpoint{}, err
	}
	return e, nil
}

// withScheme completes the short forms: a bare host is IPMI, and a known scheme
// may lack its slashes.
func withScheme(address string) string {
	scheme, rest, _ := strings.Cut(address, ":")
	name, _, _ := strings.Cut(scheme, "+")
	switch _, known := schemes[strings.ToLower(name)]; {
	case strings.HasPrefix(rest, "//"):
		return address
	case known && rest != "":
		return scheme + "://" + rest
	}
	return "ipmi://" + address
}

// shown is an address without user information and query, which may hold a
// password.
func shown(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

func (e *Endpoint) setTransport(transport string, u *url.URL) error {
	if e.Protocol == ProtocolIPMI {
		if transport != "" {
			return fmt.Errorf("BMC address %s: ipmi has no +%s form", shown(u), transport)
		}
		e.Port = 623
		if p := u.Query().Get("privilegelevel"); p != "" {
			e.Privilege = strings.ToUpper(p)
		}
		switch e.Privilege {
		case "OPERATOR", "ADMINISTRATOR":
		default:
			return fmt.Errorf("BMC address %s: privilegelevel must be OPERATOR or ADMINISTRATOR: less cannot switch power", shown(u))
		}
	} else {
		switch transport {
		case "", "https":
			e.Port = 443
		case "http":
			e.Port, e.Plain = 80, true
		default:
			return fmt.Errorf("BMC address %s: +%s is neither +http nor +https", shown(u), transport)
		}
		switch p := strings.TrimSuffix(u.Path, "/"); p {
		case "", "/redfish/v1":
		default:
			e.System = p
		}
	}
	if s := u.Port(); s != "" {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("BMC address %s: port %s is not between 1 and 65535", shown(u), s)
		}
		e.Port = int(n)
	}
	return nil
}

// validHost accepts IPs and DNS names by RFC 1123.
func validHost(h string) bool {
	if _, err := netip.ParseAddr(h); err == nil {
		return true
	}
	if h == "" || len(h) > 253 {
		return false
	}
	for label := range strings.SplitSeq(h, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range label {
			if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}
