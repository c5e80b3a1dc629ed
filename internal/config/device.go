package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/typo"
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
	for _, text := range []*string{&d.Username, &d.PasswordFile, &d.Credential, &d.Secret, &d.TLS.CA} {
		*text = r.shared(*text)
	}
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
		r.checkFiles(key, d.Line, &device, &source)
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
	case !slices.Contains(driver.Protocols, protocol):
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
			strings.Join(known, ", "), typo.Hint(d.Provider, known))
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

// maxParameters is the most that one agent gets; none knows more.
const maxParameters = 64

// refusedParameters are those of the fence agents that an entry may not set,
// with what to write instead. Dashes in a name are underscores here.
var refusedParameters = map[string]string{
	"action": "is what fenced says at each call", "option": "is what fenced says at each call",
	"ip": writeAddress, "ipaddr": writeAddress, "ipport": writeAddress, "port_as_ip": writeAddress,
	"username": "write username: NAME beside parameters", "login": "write username: NAME beside parameters",
	"password": writePassword, "passwd": writePassword,
	"password_script": noScripts, "passwd_script": noScripts, "snmp_priv_passwd_script": noScripts,
	"debug": noLog, "debug_file": noLog, "verbose": noLog, "verbose_level": noLog,
	"missing_as_off": "a machine that is not there would read as off, which proves nothing", // I1
	"help":           "makes the agent print a text and do nothing", "version": "makes the agent print a text and do nothing",
}

const (
	writeAddress  = "write address: HOST[:PORT] beside parameters"
	writePassword = "write passwordFile, credential or secret beside parameters"
	noScripts     = "fenced runs no script for a password; write a file of the password alone"
	noLog         = "an agent's own log can hold passwords"
)

// secretParameters are those that hold a secret. // I25
var secretParameters = map[string]bool{
	"community": true, "snmp_priv_passwd": true, "secret_key": true, "apikey": true, "token": true, "key_value": true,
	"hexadecimal_kg": true,
}

// agent reads a device that a fence agent drives.
func (r *reader) agent(key string, d deviceYAML, device *bmc.Device) {
	device.Agent, device.Parameters = d.Agent, d.Parameters
	if len(d.SecretParameters) > 0 { // their names are part of what chooses the device
		device.SecretParameters = make(map[string]bmc.Secret, len(d.SecretParameters))
		for name := range d.SecretParameters {
			device.SecretParameters[name] = bmc.Secret{}
		}
	}
	if d.Agent == "" {
		r.refuse(d.Line, key, "agent is missing: the name of a fence agent, as fence_apc_snmp")
	}
	if d.Address != "" {
		var err error
		if device.Endpoint, err = bmc.ParseAgentAddress(d.Address); err != nil {
			r.refuse(d.Line, key+".address", "%v", err)
		}
	}
	switch {
	case d.Provider != "":
		r.refuse(d.Line, key+".provider", "is for driver bmclib")
	case len(d.CipherSuites) > 0:
		r.refuse(d.Line, key+".cipherSuites", "is not for driver fence-agent; its agent takes parameters")
	case d.KgFile != "":
		r.refuse(d.Line, key+".kgFile", "is not for driver fence-agent; write secretParameters: {hexadecimal_kg: PATH}")
	case d.TLS != tlsYAML{}:
		r.refuse(d.Line, key+".tls", "is not for driver fence-agent; its agent takes parameters")
	case len(d.Parameters)+len(d.SecretParameters) > maxParameters:
		r.refuse(d.Line, key+".parameters", "has more than %d", maxParameters)
	}
	r.parameters(key, d)
}

// parameters refuses those that are not the administrator's to set, and puts
// each secret where it is not shown.
func (r *reader) parameters(key string, d deviceYAML) {
	for _, name := range slices.Sorted(maps.Keys(d.Parameters)) {
		full, name := key+".parameters."+name, strings.ReplaceAll(name, "-", "_")
		switch {
		case refusedParameters[name] != "":
			r.refuse(d.Line, full, "%s", refusedParameters[name])
		case secretParameters[name]:
			r.refuse(d.Line, full, "is a secret; write secretParameters: {%s: PATH}", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.SecretParameters)) {
		full := key + ".secretParameters." + name
		if _, twice := d.Parameters[name]; twice {
			r.refuse(d.Line, full, "stands in parameters, too")
		}
		if why := refusedParameters[strings.ReplaceAll(name, "-", "_")]; why != "" {
			r.refuse(d.Line, full, "%s", why)
		}
	}
	if d.Parameters["plug"] != "" && d.Parameters["port"] != "" {
		r.refuse(d.Line, key+".parameters.port", "is the older name of plug, which stands here, too")
	}
}
