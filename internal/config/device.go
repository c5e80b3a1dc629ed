package config

import (
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// device puts one device of the file into the entry.
func (r *reader) device(e *HostEntry, key string, d deviceYAML) {
	if d.Address == "" {
		r.fail(d.Line, key, "address is missing")
		return
	}
	endpoint, err := bmc.ParseEndpoint(d.Address)
	if err != nil {
		r.fail(d.Line, key+".address", "%v", err)
		return
	}
	if want := bmc.Protocol(d.Driver); d.Driver != "" && d.Driver != "auto" && want != endpoint.Protocol {
		r.fail(d.Line, key+".driver", "%s does not fit the address %s; write %s://...", d.Driver, endpoint, d.Driver)
	}
	e.Endpoint = endpoint
	e.Username = d.Username
	e.CipherSuites = d.CipherSuites
	e.TLS = bmc.TLS{CA: d.TLS.CA, PinSHA256: d.TLS.PinSHA256, InsecureSkipVerify: d.TLS.InsecureSkipVerify}
	e.PasswordFile, e.Credential = d.PasswordFile, d.Credential
	e.SecretNamespace, e.SecretName, _ = strings.Cut(d.Secret, "/")
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
}
