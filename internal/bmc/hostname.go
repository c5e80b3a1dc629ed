package bmc

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// ParseAgentAddress parses the address of a fence agent's device: HOST, HOST:PORT
// or [IPv6]:PORT. Without a port the agent uses its default.
func ParseAgentAddress(address string) (Endpoint, error) {
	host, port := strings.TrimSpace(address), ""
	if h, p, err := net.SplitHostPort(host); err == nil {
		if host, port = h, p; port == "" {
			return Endpoint{}, fmt.Errorf("address %s: the port is missing after the colon", RedactAddress(address))
		}
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	if err := checkHost(host); err != nil {
		return Endpoint{}, fmt.Errorf("address %s: %w; write HOST or HOST:PORT", RedactAddress(address), err)
	}
	n, err := parsePort(port)
	if err != nil {
		return Endpoint{}, fmt.Errorf("address %s: %w", RedactAddress(address), err)
	}
	return Endpoint{Host: host, Port: n}, nil
}

// checkHost accepts IP addresses of one machine, and DNS names by RFC 1123.
func checkHost(h string) error {
	ip, err := netip.ParseAddr(h)
	switch {
	case err != nil && strings.Contains(h, ":"):
		return fmt.Errorf("%q is not an IP address; write an IPv6 address in brackets", RedactAddress(h))
	case err != nil && !validHost(h):
		return fmt.Errorf("%q is neither an IP address nor a DNS name", RedactAddress(h))
	case err != nil:
		return nil
	case ip.Zone() != "":
		return fmt.Errorf("the zone %q of the IPv6 address is valid on one host only; use a routed address", printableText(ip.Zone()))
	case ip.IsUnspecified() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is not the address of one machine", ip)
	}
	return nil
}

// validHost accepts IP addresses and DNS names. A name that ends in a number is
// neither: it is a mistyped IPv4 address.
func validHost(h string) bool {
	if isAddr(h) {
		return true
	}
	if h == "" || len(h) > 253 {
		return false
	}
	numeric := false
	for label := range strings.SplitSeq(h, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		numeric = true
		for _, c := range label {
			switch {
			case c >= '0' && c <= '9':
			case c == '-', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
				numeric = false
			default:
				return false
			}
		}
	}
	return !numeric
}

// maxShownAddress limits what an error repeats of an address, in bytes.
const maxShownAddress = 200

// RedactAddress returns an address for errors and evidence: without user information, query
// and fragment, which may contain a password. It also works for an address that
// does not parse.
func RedactAddress(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if ok && !strings.ContainsAny(scheme, "@:/?#") {
		scheme += "://"
	} else {
		scheme, rest = "", address
	}
	at := strings.LastIndex(rest, "@")
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		if at > end { // which of them belongs to a password is not known
			return printableText(scheme + "...")
		}
		rest = rest[:end]
	}
	return printableText(scheme + rest[at+1:])
}

// printableText makes a foreign text printable and short.
func printableText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return '?'
		}
		return r
	}, text)
	if len(text) > maxShownAddress {
		text = strings.ToValidUTF8(text[:maxShownAddress], "") + "..."
	}
	return text
}
