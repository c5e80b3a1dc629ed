package config

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// verify finds what no single value shows. origin says where a key was set.
func verify(c Config, origin func(key string) string) []error {
	v := verifier{c: c, origin: origin}
	v.clusters()
	v.state()
	v.deadlines()
	v.directory("hosts", c.Hosts, Default().Hosts)
	v.directory("policies", c.Policies, Default().Policies)
	return v.errs
}

type verifier struct {
	c      Config
	origin func(key string) string
	errs   []error
}

func (v *verifier) fail(key, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: %s: %s", v.origin(key), key, fmt.Sprintf(format, args...)))
}

func (v *verifier) clusters() {
	if len(v.c.Clusters) == 0 {
		where := v.origin("clusters")
		if where == "default" {
			where = v.c.File
		}
		v.errs = append(v.errs, fmt.Errorf("%s: clusters: at least one is needed", where))
	}
	first := map[string]string{}
	for i, cl := range v.c.Clusters {
		at := fmt.Sprintf("clusters[%d]", i)
		v.required(at, "name")
		v.required(at, "kubeconfig")
		v.guarded(at+".kubeconfig", cl.Kubeconfig)
		v.guarded(at+".management.kubeconfig", cl.Management.Kubeconfig)
		if cl.Management.Kubeconfig != "" && cl.Management.ClusterName == "" { // it may manage many: whose Machines are they?
			v.fail(at+".management", "clusterName is missing: it says which of the clusters managed there this one is")
		}
		key := at + ".name"
		if where, ok := first[cl.Name]; ok && cl.Name != "" {
			v.fail(key, "the name %s is taken at %s", cl.Name, where)
			continue
		}
		first[cl.Name] = v.origin(key)
	}
}

// required finds a key that does not occur in the element. One with a bad value
// was reported when it was read, as was an element that is empty.
func (v *verifier) required(element, name string) {
	if v.origin(element) != "default" && v.origin(element+"."+name) == "default" {
		v.fail(element, "%s is missing", name)
	}
}

// guarded refuses a kubeconfig that everybody may write: its writer could point the
// daemon at another cluster. A missing file is reported when it is read.
func (v *verifier) guarded(key, path string) {
	if err := CheckGuarded(path); path != "" && err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		v.fail(key, "%v", err)
	}
}

// CheckDeadlines finds what verify finds wrong with the deadlines, when some of them come from
// the running daemon and others from the files.
func CheckDeadlines(c Config) error {
	v := verifier{c: c, origin: func(string) string { return c.File }}
	v.deadlines()
	return errors.Join(v.errs...)
}

func (v *verifier) deadlines() {
	p := v.c.Power
	v.less("power.offReadSpacing", p.OffReadSpacing, "power.offDeadline", p.OffDeadline)
	v.less("power.offDeadline", p.OffDeadline, "power.runTimeout", p.RunTimeout)
	v.less("power.onDeadline", p.OnDeadline, "power.runTimeout", p.RunTimeout)
}

func (v *verifier) less(key string, d time.Duration, than string, limit time.Duration) {
	if d >= limit {
		v.fail(key, "%s must be less than %s, which is %s", d, than, limit)
	}
}

// directory refuses a configured directory that does not exist. A default one may be
// missing.
func (v *verifier) directory(key, dir, byDefault string) {
	if dir == "" || dir == byDefault {
		return
	}
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		v.fail(key, "there is no directory %s", dir)
	case err == nil && !fi.IsDir():
		v.fail(key, "%s is not a directory", dir)
	}
}

// state verifies the keys of the engine that is chosen. What an etcd holds decides
// who is fenced: it is reached over TLS, or not beyond this host.
func (v *verifier) state() {
	s := v.c.State
	if s.Engine != EngineEtcd {
		return
	}
	if len(s.Etcd.Endpoints) == 0 {
		v.fail("state.engine", "etcd needs state.etcd.endpoints")
	}
	for i, e := range s.Etcd.Endpoints {
		if err := checkEndpoint(e); err != nil {
			v.fail(fmt.Sprintf("state.etcd.endpoints[%d]", i), "%v", err)
		}
	}
	if s.Etcd.Prefix == "" {
		v.fail("state.etcd.prefix", "must not be empty")
	}
	if (s.Etcd.Cert == "") != (s.Etcd.Key == "") {
		v.fail("state.etcd", "cert and key go together")
	}
	v.readable("state.etcd.ca", s.Etcd.CA)
	v.readable("state.etcd.cert", s.Etcd.Cert)
	v.readable("state.etcd.key", s.Etcd.Key)
}

func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	wrong := fmt.Sprintf("%q is not https://HOST:PORT", bmc.RedactAddress(text))
	switch {
	case err == nil && u.User != nil: // it is not repeated // I25
		return errors.New("names a user: sign in with cert and key")
	case err != nil || u.Port() == "" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return errors.New(wrong)
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http":
		return orError(loopback(u.Hostname()), "http is only for this host: use https")
	}
	return errors.New(wrong)
}

// warnState warns of an etcd that does not authenticate its clients: whoever writes the
// state can arm fenced.
func warnState(c Config) []string {
	if c.State.Engine != EngineEtcd || c.State.Etcd.Cert != "" {
		return nil
	}
	who := "every user of this host"
	for _, e := range c.State.Etcd.Endpoints {
		if u, err := url.Parse(e); err != nil || !loopback(u.Hostname()) {
			who = "everybody who reaches it"
		}
	}
	return []string{fmt.Sprintf("%s: state.etcd: without cert and key %s can write the state, arm fenced and have hosts powered off; "+
		"let etcd ask for client certificates (--client-cert-auth) and set cert and key", c.File, who)}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// readable opens a file only to report an error at the start: the daemon reads it later.
func (v *verifier) readable(key, path string) {
	if path == "" {
		return
	}
	f, err := openRegular(path)
	if err != nil {
		v.fail(key, "%v", err)
		return
	}
	_ = f.Close() // it was only looked at
}

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
