package bmc

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Protocol is the network protocol of a BMC.
type Protocol string

// The native protocols.
const (
	ProtocolIPMI    Protocol = "ipmi"
	ProtocolRedfish Protocol = "redfish"
)

// The IPMI session privileges that can switch power.
const (
	privilegeOperator      = "OPERATOR"
	privilegeAdministrator = "ADMINISTRATOR"
)

// maxAddress limits an address, in bytes.
const maxAddress = 2048

// Endpoint is a parsed BMC address.
type Endpoint struct {
	Protocol Protocol
	Host     string // DNS name or IP without brackets
	Port     int    // 623 for IPMI, 443 or 80 for Redfish unless given; 0 only for a fence agent: its own default
	Plain    bool   // Redfish over http
	System   string // Redfish path of the ComputerSystem, escaped as in a URL; empty = the only one, found by discovery
	// Privilege is the requested privilege of the IPMI session: OPERATOR unless
	// privilegelevel= says otherwise.
	Privilege string
}

// String returns the address for people and logs, without any secret.
// ParseEndpoint parses it to the same Endpoint.
func (e Endpoint) String() string {
	if e.Protocol == ProtocolRedfish {
		return e.BaseURL() + e.System
	}
	text := string(e.Protocol) + "://" + e.HostPort()
	if e.Privilege == privilegeAdministrator {
		text += "?privilegelevel=" + privilegeAdministrator
	}
	return text
}

// HostPort is the address to dial; only the host if there is no port.
func (e Endpoint) HostPort() string {
	if e.Port == 0 {
		return e.Host
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
}

// BaseURL is the scheme and authority of a Redfish service.
func (e Endpoint) BaseURL() string {
	if e.Plain {
		return "http://" + e.HostPort()
	}
	return "https://" + e.HostPort()
}

// Serves reports whether a URL is on the scheme, host and port of the endpoint, and names no user. A
// driver sends the account nowhere else. // I10
func (e Endpoint) Serves(u *url.URL) bool {
	scheme, port := "https", "443"
	if e.Plain {
		scheme, port = "http", "80"
	}
	if p := u.Port(); p != "" {
		port = p
	}
	return u.Scheme == scheme && u.User == nil && strings.EqualFold(u.Hostname(), e.Host) && port == strconv.Itoa(e.Port)
}

// ParseEndpoint parses a BMC address in every form that Metal3 has or had. Errors
// name the address, without user information and query, and the correct form.
func ParseEndpoint(address string) (Endpoint, error) {
	address = strings.TrimSpace(address)
	switch {
	case address == "":
		return Endpoint{}, fmt.Errorf("BMC address is empty; write for example ipmi://192.0.2.13 or redfish://192.0.2.13/redfish/v1/Systems/1")
	case len(address) > maxAddress:
		return Endpoint{}, fmt.Errorf("BMC address %s: it is longer than %d bytes", RedactAddress(address), maxAddress)
	}
	full, err := withScheme(address)
	if err != nil {
		return Endpoint{}, err
	}
	// The text of url.Error repeats the address with its user information.
	u, err := url.Parse(full)
	if err != nil || u.Opaque != "" {
		return Endpoint{}, fmt.Errorf("BMC address %s does not parse as a URL; write SCHEME://HOST[:PORT][/PATH], an IPv6 address in brackets", RedactAddress(full))
	}
	e, err := endpointOf(u)
	if err != nil {
		return Endpoint{}, fmt.Errorf("BMC address %s: %w", RedactAddress(full), err)
	}
	if len(e.String()) > maxAddress { // the form in which it is stored and parsed again
		return Endpoint{}, fmt.Errorf("BMC address %s: it is longer than %d bytes once its path is escaped", RedactAddress(full), maxAddress)
	}
	return e, nil
}

// endpointOf converts a URL; its errors do not name the address.
func endpointOf(u *url.URL) (e Endpoint, err error) {
	s, transport, ok := knownScheme(u.Scheme)
	if !ok {
		return e, fmt.Errorf("%s", unknownScheme(u.Scheme))
	}
	e = Endpoint{Protocol: s.protocol, Host: u.Hostname(), Privilege: privilegeOperator}
	if err := checkHost(e.Host); err != nil {
		return e, err
	}
	if s.port != 0 {
		if transport != "" {
			return e, fmt.Errorf("%s has no +%s form; leave +%[2]s out", s.protocol, transport)
		}
		e.Port = s.port
		if e.Privilege, err = privilege(u.Query()); err != nil {
			return e, err
		}
	} else {
		if e.Port, e.Plain, err = webPort(transport); err != nil {
			return e, err
		}
		if e.System, err = systemPath(u, s); err != nil {
			return e, err
		}
	}
	port, err := parsePort(u.Port())
	if port != 0 && !s.portIsOther {
		e.Port = port
	}
	return e, err
}

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

func webPort(transport string) (port int, plain bool, err error) {
	switch transport {
	case "", "https":
		return 443, false, nil
	case "http":
		return 80, true, nil
	}
	return 0, false, fmt.Errorf("+%s is neither +http nor +https", printableText(transport))
}

// privilege parses privilegelevel=, in any case; it ignores other keys.
func privilege(query url.Values) (string, error) {
	found := privilegeOperator
	for key, values := range query {
		if !strings.EqualFold(key, "privilegelevel") {
			continue
		}
		for _, v := range values {
			switch strings.ToUpper(v) {
			case privilegeOperator:
			case privilegeAdministrator:
				found = privilegeAdministrator
			default:
				return "", fmt.Errorf("privilegelevel must be OPERATOR or ADMINISTRATOR: less cannot switch power")
			}
		}
	}
	return found, nil
}

// systemPath is the path of the system in the address; "" means discovery.
func systemPath(u *url.URL, s scheme) (string, error) {
	path := strings.TrimRight(u.EscapedPath(), "/")
	switch {
	case path == "", path == "/redfish", path == "/redfish/v1", path == "/redfish/v1/Systems":
		return "", nil
	case s.pathIsOther && !strings.HasPrefix(path, "/redfish/v1/Systems/"):
		return "", nil
	case strings.Contains(path, "@"): // user information that contains a slash ends up here
		return "", fmt.Errorf("an @ in the path; write it as %%40, and write no user or password in an address")
	case strings.Contains(path, "//"), strings.Contains(path+"/", "/./"), strings.Contains(path+"/", "/../"):
		return "", fmt.Errorf("the path is not the @odata.id of a system; write for example /redfish/v1/Systems/1")
	}
	return path, nil
}

// parsePort parses a port; an empty text is 0.
func parsePort(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %s is not between 1 and 65535", RedactAddress(text))
	}
	return int(n), nil
}

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
	case ip.IsUnspecified() || ip.IsMulticast() || ip == broadcast:
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
