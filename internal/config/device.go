package config

import (
	"github.com/fenced/fenced/internal/bmc"
)

// device reads one device of the file.
func (r *reader) device(key string, d deviceYAML) (device bmc.Device, password PasswordSource) {
	if d.Address == "" {
		r.fail(d.Line, key, "address is missing")
		return device, password
	}
	endpoint, err := bmc.ParseEndpoint(d.Address)
	if err != nil {
		r.fail(d.Line, key+".address", "%v", err)
		return device, password
	}
	if want := bmc.Protocol(d.Driver); d.Driver != "" && d.Driver != "auto" && want != endpoint.Protocol {
		r.fail(d.Line, key+".driver", "%s does not fit the address %s; write %s://...", d.Driver, endpoint, d.Driver)
	}
	device = bmc.Device{
		Driver: bmc.Driver(endpoint.Protocol), Endpoint: endpoint, Username: d.Username, Secret: d.Secret, CipherSuites: d.CipherSuites,
		TLS: bmc.TLS{CA: d.TLS.CA, PinSHA256: d.TLS.PinSHA256, InsecureSkipVerify: d.TLS.InsecureSkipVerify},
	}
	password = PasswordSource{File: d.PasswordFile, Credential: d.Credential}
	sources := 0
	for _, s := range []string{d.PasswordFile, d.Credential, d.Secret} {
		if s != "" {
			sources++
		}
	}
	if sources != 1 {
		r.fail(d.Line, key, "needs one of passwordFile, credential and secret, not %d of them", sources)
	}
	// A Secret holds the user name too.
	if d.Username == "" && d.Secret == "" {
		r.fail(d.Line, key, "username is missing")
	}
	return device, password
}
