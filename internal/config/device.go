package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// maxIPMIUser is the longest user name that IPMI 2.0 carries, in bytes.
const maxIPMIUser = 16

// checkDriver wants a driver of package bmc, or auto.
func checkDriver(text string) error {
	words := []string{"auto"}
	for _, d := range bmc.Drivers() {
		words = append(words, string(d.Name))
	}
	return orError(slices.Contains(words, text), fmt.Sprintf("%q is not known; use %s", text, strings.Join(words, ", ")))
}

// device reads one device of the file.
func (r *reader) device(key string, d deviceYAML) (bmc.Device, PasswordSource) {
	before := len(r.errs)
	device := bmc.Device{
		Driver: bmc.Driver(d.Driver), Username: d.Username, Secret: d.Secret, CipherSuites: d.CipherSuites,
		TLS: bmc.TLS{
			CA: d.TLS.CA, PinSHA256: d.TLS.PinSHA256, InsecureSkipVerify: d.TLS.InsecureSkipVerify, RSAKeyExchange: d.TLS.RSAKeyExchange,
		},
		BasicAuth: d.Auth == "basic", IgnoreUUID: d.IgnoreUUID,
	}
	if device.Driver.Descriptor().ByParameters {
		r.agent(key, d, &device)
	} else {
		r.service(key, d, &device)
	}
	r.ofRedfish(key, d, device.Driver)
	if d.IgnoreUUID && !device.IsNative() {
		r.refuse(d.Line, key+".ignoreUUID", "is for drivers ipmi and redfish; a device of this driver is enrolled in any case")
	}
	source := r.password(key, d)
	if len(r.errs) > before {
		return device, source
	}
	if part, why := device.ConfigError(); why != "" {
		r.refuse(d.Line, key+"."+part, "%s", why)
	}
	if r.checksFiles {
		r.checkFiles(key, d.Line, device, source)
	}
	return device, source
}

// service reads a device that has an address of Metal3.
func (r *reader) service(key string, d deviceYAML, device *bmc.Device) {
	if d.Agent != "" || len(d.Parameters) > 0 || len(d.SecretParameters) > 0 {
		r.refuse(d.Line, key, "agent, parameters and secretParameters are for driver fence-agent; write driver: fence-agent")
	}
	if d.Address == "" {
		r.refuse(d.Line, key, "address is missing")
		return
	}
	var err error
	if device.Endpoint, err = bmc.ParseEndpoint(d.Address); err != nil {
		r.refuse(d.Line, key+".address", "%v", err)
		return
	}
	protocol := device.Endpoint.Protocol
	if device.Driver == "" || device.Driver == "auto" {
		device.Driver = bmc.Driver(protocol) // the native one
	}
	driver := device.Driver.Descriptor()
	switch {
	case !driver.Supports(protocol):
		r.refuse(d.Line, key+".driver", "%s does not fit the address %s; write %s://...", d.Driver, device.Endpoint, d.Driver)
	case driver.Providers != nil:
		r.provider(key, d, device)
	}
	if d.Provider != "" && driver.Providers == nil {
		r.refuse(d.Line, key+".provider", "is for driver bmclib; write driver: bmclib")
	}
	if d.KgFile != "" && device.Driver != bmc.DriverIPMI {
		r.refuse(d.Line, key+".kgFile", "is only for driver ipmi")
	}
	if len(d.Username) > maxIPMIUser && protocol == bmc.ProtocolIPMI {
		r.refuse(d.Line, key+".username", "is longer than the %d bytes of IPMI", maxIPMIUser)
	}
}

// ofRedfish refuses the keys of driver redfish beside another driver, which would
// ignore them.
func (r *reader) ofRedfish(key string, d deviceYAML, driver bmc.Driver) {
	if driver == bmc.DriverRedfish {
		return
	}
	if d.Auth == "basic" {
		r.refuse(d.Line, key+".auth", "basic is for driver redfish")
	}
	if d.TLS.RSAKeyExchange && !driver.Descriptor().ByParameters { // which have no key of tls
		r.refuse(d.Line, key+".tls.rsaKeyExchange", "is for driver redfish")
	}
}

// provider reads which provider of bmclib is used.
func (r *reader) provider(key string, d deviceYAML, device *bmc.Device) {
	known := device.Driver.Descriptor().Providers[device.Endpoint.Protocol]
	if device.Provider = d.Provider; d.Provider == "" {
		device.Provider = known[0]
	}
	if !slices.Contains(known, device.Provider) {
		r.refuse(d.Line, key+".provider", "%q cannot drive the address %s; use %s%s", d.Provider, device.Endpoint,
			strings.Join(known, ", "), didYouMean(d.Provider, known))
	}
}

// password reads where user name and password are. Some agents need neither.
func (r *reader) password(key string, d deviceYAML) PasswordSource {
	given := 0
	for _, source := range []string{d.PasswordFile, d.Credential, d.Secret} {
		if source != "" {
			given++
		}
	}
	optional := bmc.Driver(d.Driver).Descriptor().AccountOptional
	switch {
	case given > 1, given == 0 && !optional:
		r.refuse(d.Line, key, "needs one of passwordFile, credential and secret, not %d of them", given)
	case d.Username == "" && d.Secret == "" && !optional: // a Secret holds the user name too
		r.refuse(d.Line, key, "username is missing")
	}
	return PasswordSource{File: d.PasswordFile, Credential: d.Credential, KgFile: d.KgFile, Parameters: d.SecretParameters}
}
