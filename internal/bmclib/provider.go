package bmclib

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bmc-toolbox/bmclib/v2/providers/asrockrack"
	"github.com/bmc-toolbox/bmclib/v2/providers/dell"
	"github.com/bmc-toolbox/bmclib/v2/providers/ipmitool"
	"github.com/bmc-toolbox/bmclib/v2/providers/openbmc"
	gofish "github.com/bmc-toolbox/bmclib/v2/providers/redfish"
	"github.com/go-logr/logr"

	"github.com/fenced/fenced/internal/bmc"
)

// provider is the part of a bmclib provider that is used.
type provider interface {
	Open(ctx context.Context) error
	Close(ctx context.Context) error
	PowerStateGet(ctx context.Context) (string, error)
	PowerSet(ctx context.Context, state string) (bool, error)
}

// providerSpec is one provider that can be configured by name.
type providerSpec struct {
	name     string
	protocol bmc.Protocol
	// answers are the exact texts of its power states, without surrounding spaces.
	answers map[string]bmc.PowerState
	// skipsOff: the provider sends no off if the status does not contain the word
	// for on.
	skipsOff bool
	build    func(d bmc.Device, c *http.Client) provider
}

// redfishAnswers are Redfish's own texts, which these providers pass on.
var redfishAnswers = map[string]bmc.PowerState{"On": bmc.On, "Off": bmc.Off}

// providerSpecs are the providers by name; the first of a protocol is its
// default.
var providerSpecs = []providerSpec{
	{
		name: ipmitool.ProviderName, protocol: bmc.ProtocolIPMI, skipsOff: true,
		answers: map[string]bmc.PowerState{"Chassis Power is on": bmc.On, "Chassis Power is off": bmc.Off},
	},
	{
		name: gofish.ProviderName, protocol: bmc.ProtocolRedfish, answers: redfishAnswers,
		build: func(d bmc.Device, c *http.Client) provider {
			return gofish.New(urlHost(d), d.Username, d.Password.Reveal(), logr.Discard(), gofish.WithPort(port(d)), gofish.WithHttpClient(c))
		},
	},
	{
		name: dell.ProviderName, protocol: bmc.ProtocolRedfish, answers: redfishAnswers,
		build: func(d bmc.Device, c *http.Client) provider {
			return dell.New(urlHost(d), d.Username, d.Password.Reveal(), logr.Discard(), dell.WithPort(port(d)), dell.WithHttpClient(c))
		},
	},
	{
		name: openbmc.ProviderName, protocol: bmc.ProtocolRedfish, answers: redfishAnswers,
		build: func(d bmc.Device, c *http.Client) provider {
			return openbmc.New(urlHost(d), d.Username, d.Password.Reveal(), logr.Discard(), openbmc.WithPort(port(d)), openbmc.WithHttpClient(c))
		},
	},
	{
		name: asrockrack.ProviderName, protocol: bmc.ProtocolRedfish, answers: redfishAnswers, // it uses the same two texts
		build: func(d bmc.Device, c *http.Client) provider {
			return asrockrack.NewWithOptions(host(d)+":"+port(d), d.Username, d.Password.Reveal(), logr.Discard(), asrockrack.WithHTTPClient(c))
		},
	},
}

// unusableProviders are providers of bmclib that are not reliable enough.
var unusableProviders = map[string]string{
	"supermicro": "it switches power through Redfish all the same, over connections that fenced can neither verify by a pin nor bound; " +
		"use provider gofish",
	"IntelAMT": "it says off of whatever is not on, a sleeping machine too, and takes an error for off when it is to switch off; " +
		"use the fence agent fence_amt_ws",
	"homeassistant": "it is no BMC",
	"rpc":           "it is no BMC",
}

// choose finds the provider that the device is configured with.
func choose(d bmc.Device) (providerSpec, error) {
	if why, ok := unusableProviders[d.Provider]; ok {
		return providerSpec{}, fmt.Errorf("provider %s cannot be used: %s", d.Provider, why)
	}
	var names []string
	for _, k := range providerSpecs {
		switch {
		case d.Provider == k.name && d.Endpoint.Protocol != k.protocol:
			return providerSpec{}, fmt.Errorf("provider %s uses %s, but the address is %s", k.name, k.protocol, d.Endpoint)
		case d.Provider == k.name, d.Provider == "" && d.Endpoint.Protocol == k.protocol:
			return k, nil
		}
		names = append(names, k.name)
	}
	return providerSpec{}, fmt.Errorf("unknown provider %q; use one of %s", d.Provider, strings.Join(names, ", "))
}

// parse accepts a provider's exact texts for On and Off. Everything else,
// including PoweringOff and an empty text, is Unknown. // I1
func (k providerSpec) parse(text string) (bmc.PowerState, string) {
	text = strings.TrimSpace(text)
	return k.answers[text], bmc.Printable(text, maxRaw)
}

// host is the host in the form in which a port can follow.
func host(d bmc.Device) string {
	if strings.Contains(d.Endpoint.Host, ":") {
		return "[" + d.Endpoint.Host + "]"
	}
	return d.Endpoint.Host
}

func urlHost(d bmc.Device) string {
	if d.Endpoint.Plain {
		return "http://" + host(d)
	}
	return "https://" + host(d)
}

func port(d bmc.Device) string { return strconv.Itoa(d.Endpoint.Port) }

// systemDirs are where packages install ipmitool. PATH is not used, because the
// program gets the password.
var systemDirs = []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"}

// newIpmitool creates the provider that runs ipmitool from one of dirs.
func newIpmitool(d bmc.Device, dirs []string) (provider, error) {
	path, err := findIpmitool(dirs)
	if err != nil {
		return nil, err
	}
	suite, err := suiteOf(d.CipherSuites)
	if err != nil {
		return nil, err
	}
	// One suite: otherwise bmclib runs ipmitool with 3 and then with 17.
	return ipmitool.New(host(d), d.Username, d.Password.Reveal(), ipmitool.WithPort(port(d)),
		ipmitool.WithCipherSuite(suite), ipmitool.WithIpmitoolPath(path))
}

func findIpmitool(dirs []string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, "ipmitool")
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", fmt.Errorf("find ipmitool: %w", err)
		case info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0:
			return path, nil
		}
	}
	return "", errors.New("ipmitool is not installed; install the package ipmitool, or remove driver: bmclib to use the native driver")
}

// suiteOf is the one cipher suite for ipmitool.
func suiteOf(suites []int) (string, error) {
	if len(suites) == 0 {
		return "17", nil
	}
	if s := suites[0]; s == 17 || s == 3 {
		return strconv.Itoa(s), nil
	}
	return "", fmt.Errorf("cipher suite %d is not allowed; use 17 or 3, which encrypt and sign", suites[0])
}

// tlsConfig verifies the BMC's certificate with the entry's CA or the system's
// certificates. bmclib by default verifies nothing.
func tlsConfig(t bmc.TLS) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CA == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA file: %w", err)
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s contains no PEM certificate", t.CA)
	}
	return conf, nil
}
