package config

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// numberChecks and textChecks are what the tag "is" may name. On an empty text
// no check runs; the tag "empty" says where there must be one.
var (
	numberChecks = map[string]func(int64) error{
		"positive":    atLeast(1, "more than 0"),
		"notNegative": atLeast(0, "0 or more"),
		"percent": func(n int64) error {
			return must(n >= 1 && n <= 100, "must be a percentage from 1 to 100")
		},
		"cipherSuite": func(n int64) error {
			return must(n == 17 || n == 3, "only the cipher suites 17 and 3 are safe and supported")
		},
	}
	textChecks = map[string]func(string) error{
		"path":        func(string) error { return nil },
		"socket":      checkSocket,
		"listen":      checkListen,
		"clusterName": matches(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`, "must be letters, digits, . _ or -, at most 63, and begin and end with a letter or digit"),
		"namespace":   matches(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`, "is not the name of a namespace"),
		"nodeName":    matches(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, "is not the name of a Node"),
		"labelKey":    matches(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`, "is not the key of a label"),
		"principal":   func(s string) error { _, err := ParsePrincipal(s); return err },
		"address":     func(s string) error { _, err := bmc.ParseEndpoint(s); return err },
		"secretRef":   matches(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, "must be NAMESPACE/NAME of a Secret"),
		"credential":  matches(`^[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,254}$`, "must be the name of a systemd credential, not a path"),
		"uuid": func(s string) error {
			return must(bmc.UsableUUID(s), "must be a system UUID that is not a vendor's placeholder")
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
	if later := tag.Get("later"); later != "" && slices.Contains(strings.Split(later, "|"), text) {
		return fmt.Errorf("%s is not supported by this version; use %s", text, strings.Join(words, " or "))
	}
	return fmt.Errorf("%q is not known; use %s", text, strings.Join(words, ", "))
}

func must(ok bool, text string) error {
	if ok {
		return nil
	}
	return errors.New(text)
}

func atLeast(least int64, words string) func(int64) error {
	return func(n int64) error { return must(n >= least, "must be "+words) }
}

func matches(pattern, otherwise string) func(string) error {
	re := regexp.MustCompile(pattern)
	return func(s string) error { return must(re.MatchString(s), fmt.Sprintf("%q %s", s, otherwise)) }
}

// checkSocket: the kernel takes 107 bytes and a longer path would only fail
// when the daemon starts to listen.
func checkSocket(path string) error {
	return must(len(path) <= 107, "the path of a socket has at most 107 bytes")
}

func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT", address)
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return must(err == nil, fmt.Sprintf("%q is not a port from 0 to 65535", port))
}

func checkPin(pin string) error {
	sum, err := hex.DecodeString(pin)
	if err != nil {
		sum, err = base64.StdEncoding.DecodeString(pin)
	}
	return must(err == nil && len(sum) == 32, "must be a SHA-256 in hex or base64")
}
