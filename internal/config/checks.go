package config

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// numberChecks and textChecks are what the tag "is" may name. On an empty text
// no check runs; the tag "empty" says where there must be one.
var (
	numberChecks = map[string]func(int64) error{
		"positive":    atLeast(1, "more than 0"),
		"notNegative": atLeast(0, "0 or more"),
		"percent": func(n int64) error {
			return orError(n >= 1 && n <= 100, "must be a percentage from 1 to 100")
		},
		"watchdogTimeout": between(30*time.Second, 10*time.Minute),
		"sweepInterval": func(n int64) error {
			return orError(n == 0 || n >= int64(10*time.Second), "must be 10s or more, or 0 for no sweep")
		},
		"cipherSuite": func(n int64) error {
			return orError(n == 17 || n == 3, "only the cipher suites 17 and 3 are safe and supported")
		},
	}
	textChecks = map[string]func(string) error{
		"path":        func(string) error { return nil },
		"socket":      checkSocket,
		"listen":      checkListen,
		"clusterName": matches(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`, "must be letters, digits, . _ or -, at most 63, and begin and end with a letter or digit"),
		"namespace":   matches(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`, "is not the name of a namespace"),
		"nodeName":    matches(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, "is not the name of a Node"),
		"machineRef":  matches(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, "is not NAMESPACE/NAME of a Machine"),
		"network":     checkNetwork,
		"labelKey":    matches(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`, "is not the key of a label"),
		"keyPattern":  checkKeyPattern,
		"group": func(s string) error {
			return orError(principalName().MatchString(s), fmt.Sprintf("%q is not the name of a group", s))
		},
		"principal":  func(s string) error { _, err := ParsePrincipal(s); return err },
		"driver":     checkDriver,
		"agent":      matches(`^fence_[a-z0-9_]{1,58}$`, "is not the name of a fence agent, as fence_apc_snmp"),
		"parameter":  checkParameter,
		"secretRef":  hidden(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, "must be NAMESPACE/NAME of a Secret"),
		"credential": hidden(`^[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,254}$`, "must be the name of a systemd credential, not a path"),
		"uuid": func(s string) error {
			return orError(bmc.UsableUUID(s), "must be a system UUID that is not a vendor's placeholder")
		},
		"pin": checkPin,
	}
)

func checkValue(v reflect.Value, tag reflect.StructTag) error {
	is := tag.Get("is")
	if v.Kind() == reflect.String && v.String() == "" && tag.Get("empty") == "no" {
		return errors.New("must not be empty")
	}
	if is == "" {
		return nil
	}
	if v.CanInt() {
		return numberChecks[is](v.Int())
	}
	text := v.String()
	if check, ok := textChecks[is]; ok {
		if text == "" {
			return nil
		}
		return check(text)
	}
	words := strings.Split(is, "|")
	if slices.Contains(words, text) {
		return nil
	}
	return fmt.Errorf("%q is not known; use %s", text, strings.Join(words, ", "))
}

func orError(ok bool, text string) error {
	if ok {
		return nil
	}
	return errors.New(text)
}

func atLeast(least int64, words string) func(int64) error {
	return func(n int64) error { return orError(n >= least, "must be "+words) }
}

func between(least, most time.Duration) func(int64) error {
	return func(n int64) error {
		return orError(n >= int64(least) && n <= int64(most), fmt.Sprintf("must be from %s to %s", least, most))
	}
}

// lazily compiles a pattern when it is first used: most starts, of fencectl above all, use few, and long ones take a megabyte.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

func matches(pattern, otherwise string) func(string) error {
	re := lazily(pattern)
	return func(s string) error { return orError(re().MatchString(s), fmt.Sprintf("%q %s", s, otherwise)) }
}

// hidden is matches for a key beside which somebody may have written the password
// itself: what stands there is not repeated. // I25
func hidden(pattern, text string) func(string) error {
	re := lazily(pattern)
	return func(s string) error { return orError(re().MatchString(s), text) }
}

// checkSocket: the kernel takes 107 bytes and a longer path would only fail
// when the daemon starts to listen.
func checkSocket(path string) error {
	return orError(len(path) <= 107, "the path of a socket has at most 107 bytes")
}

// keyPattern has the letters of a key, and * for any text without a slash.
var keyPattern = lazily(`^([a-z0-9.*-]+/)?[A-Za-z0-9._*-]+$`)

// checkKeyPattern refuses what is no key, and what would be every key.
func checkKeyPattern(s string) error {
	return orError(keyPattern().MatchString(s) && strings.Trim(s, "*/.-_") != "",
		fmt.Sprintf("%q is not the key of a label, annotation or taint, as example.com/state or *.example.com/not-ready", s))
}

func checkNetwork(text string) error {
	p, err := netip.ParsePrefix(text)
	return orError(err == nil && p == p.Masked(), fmt.Sprintf("%q is not a network as 192.0.2.0/24, or an address as 192.0.2.5/32", text))
}

func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", address)
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return orError(err == nil, fmt.Sprintf("%q is not a port from 0 to 65535", port))
}

// parameterName is what the fence agents call their parameters.
var parameterName = lazily(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// checkParameter: an agent reads its parameters as lines of NAME=VALUE.
func checkParameter(s string) error {
	printable := !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })
	return orError(printable && len(s) <= 1024, "must be one line of at most 1024 bytes")
}

func checkPin(pin string) error {
	sum, err := hex.DecodeString(pin)
	if err != nil {
		sum, err = base64.StdEncoding.DecodeString(pin)
	}
	return orError(err == nil && len(sum) == 32, "must be a SHA-256 in hex or base64")
}
