package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"

	"github.com/fenced/fenced/internal/bmc"
)

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
	switch {
	case err == nil && u.User != nil: // it is not repeated // I25
		return errors.New("names a user: sign in with cert and key")
	case err != nil || u.Port() == "" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return orError(false, fmt.Sprintf("%q is not https://HOST:PORT", bmc.RedactAddress(text)))
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http":
		return orError(loopback(u.Hostname()), "http is only for this host: use https")
	}
	return orError(false, fmt.Sprintf("%q is not https://HOST:PORT", bmc.RedactAddress(text)))
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
