package bmclib

import (
	"context"
	"fmt"
	"net/http"
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

// provider is what is used of a provider of bmclib.
type provider interface {
	Open(ctx context.Context) error
	Close(ctx context.Context) error
	PowerStateGet(ctx context.Context) (string, error)
	PowerSet(ctx context.Context, state string) (bool, error)
}

// kind is one provider that can be asked for by name.
type kind struct {
	name     string
	protocol bmc.Protocol
	// answers are the exact texts of its power states, spaces around cut off.
	answers map[string]bmc.PowerState
	// skips: an off is not sent where the status lacks the word for on.
	skips bool
	build func(d bmc.Device, c *http.Client) provider
}

// redfishAnswers are Redfish's own words, which these providers pass on.
var redfishAnswers = map[string]bmc.PowerState{"On": bmc.On, "Off": bmc.Off}

// kinds are the providers by name; the first of a protocol is its default.
var kinds = []kind{
	{
		name: ipmitool.ProviderName, protocol: bmc.ProtocolIPMI, skips: true,
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
		name: asrockrack.ProviderName, protocol: bmc.ProtocolRedfish, answers: redfishAnswers, // its texts are the same two
		build: func(d bmc.Device, c *http.Client) provider {
			return asrockrack.NewWithOptions(host(d)+":"+port(d), d.Username, d.Password.Reveal(), logr.Discard(), asrockrack.WithHTTPClient(c))
		},
	},
}

// refused are providers that bmclib has and that cannot be relied upon here.
var refused = map[string]string{
	"supermicro": "it switches power through Redfish all the same, over connections that fenced can neither verify by a pin nor bound; " +
		"use provider gofish",
	"IntelAMT": "it says off of whatever is not on, a sleeping machine too, and takes an error for off when it is to switch off; " +
		"use the fence agent fence_amt_ws",
	"homeassistant": "it is no BMC",
	"rpc":           "it is no BMC",
}

// choose finds the provider that the device asks for.
func choose(d bmc.Device) (kind, error) {
	if why, ok := refused[d.Provider]; ok {
		return kind{}, fmt.Errorf("provider %s cannot be used: %s", d.Provider, why)
	}
	var names []string
	for _, k := range kinds {
		switch {
		case d.Provider == k.name && d.Endpoint.Protocol != k.protocol:
			return kind{}, fmt.Errorf("provider %s speaks %s, and the address is %s", k.name, k.protocol, d.Endpoint)
		case d.Provider == k.name, d.Provider == "" && d.Endpoint.Protocol == k.protocol:
			return k, nil
		}
		names = append(names, k.name)
	}
	return kind{}, fmt.Errorf("there is no provider %q; known are %s", d.Provider, strings.Join(names, ", "))
}

// host is the host as it stands before a port.
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
