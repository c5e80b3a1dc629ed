package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

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
