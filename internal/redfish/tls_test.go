package redfish_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/redfishsim"
)

func TestWhatIsTrusted(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	other := start(t, redfishsim.Options{})
	raw := must.Do(hex.DecodeString(sim.SPKI()))(t)
	for name, tc := range map[string]struct {
		tls     bmc.TLS
		trusted bool
	}{
		"its CA":                   {bmc.TLS{CA: sim.CAFile()}, true},
		"the system's pool":        {bmc.TLS{}, false},
		"another CA":               {bmc.TLS{CA: other.CAFile()}, false},
		"its pin":                  {bmc.TLS{PinSHA256: sim.SPKI()}, true},
		"its pin in base64":        {bmc.TLS{PinSHA256: base64.StdEncoding.EncodeToString(raw)}, true},
		"its pin in capitals":      {bmc.TLS{PinSHA256: strings.ToUpper(sim.SPKI())}, true},
		"another pin":              {bmc.TLS{PinSHA256: other.SPKI()}, false},
		"its CA, another pin":      {bmc.TLS{CA: sim.CAFile(), PinSHA256: other.SPKI()}, false},
		"its pin, another CA":      {bmc.TLS{CA: other.CAFile(), PinSHA256: sim.SPKI()}, false},
		"anything":                 {bmc.TLS{InsecureSkipVerify: true}, true},
		"anything but another pin": {bmc.TLS{InsecureSkipVerify: true, PinSHA256: other.SPKI()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(t, sim)
			h.TLS = tc.tls
			sim.ResetRequests()
			_, err := open(t, h, timing).Read(t.Context())
			if tc.trusted {
				require.NoError(t, err)
				return
			}
			bmctest.Failed(t, err, bmc.KindTLS)
			assert.Empty(t, sim.Requests(), "nothing is said to a stranger")
		})
	}
}

func TestNewRefusesWhatItCannotTrustBy(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("no certificate"), 0o600))
	for name, conf := range map[string]bmc.TLS{
		"missing CA file": {CA: filepath.Join(t.TempDir(), "absent.pem")},
		"CA without PEM":  {CA: notPEM},
		"short pin":       {PinSHA256: "abcd"},
		"pin of no kind":  {PinSHA256: strings.Repeat("z", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(t, sim)
			h.TLS = conf
			_, err := redfish.New(h, timing)
			bmctest.Failed(t, err, bmc.KindTLS)
		})
	}
}

// oldServer is Debian's OpenSSL as the web server of an old BMC: one system that is
// on, over the TLS that these arguments of s_server leave. The certificate is a new
// one, made with those of req.
func oldServer(t *testing.T, server, req []string) bmc.Device {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		bmctest.Missing(t, "openssl is not installed: run make deps")
	}
	dir := t.TempDir()
	const page = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + `{"PowerState":"On","UUID":"` + uuid1 + `"}`
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "redfish/v1/Systems"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redfish/v1/Systems/1"), []byte(page), 0o600))
	args := append([]string{"req", "-x509", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
		"-subj", "/CN=bmc", "-addext", "subjectAltName=IP:127.0.0.1"}, req...)
	made := exec.CommandContext(t.Context(), "openssl", args...)
	made.Dir = dir
	out, err := made.CombinedOutput()
	require.NoError(t, err, "%s", out)

	d := bmc.Device{
		Driver: bmc.DriverRedfish, Username: "admin", Password: bmc.NewSecret("secret"), BasicAuth: true,
		TLS: bmc.TLS{CA: filepath.Join(dir, "cert.pem")},
	}
	d.Endpoint = must.Do(bmc.ParseEndpoint("redfish://" + serve(t, dir, server) + "/redfish/v1/Systems/1"))(t)
	return d
}

// serve runs s_server until the test ends, and gives its address.
func serve(t *testing.T, dir string, args []string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := exec.CommandContext(ctx, "openssl", append([]string{"s_server", "-accept", "127.0.0.1:0", "-cert", "cert.pem", "-key", "key.pem", "-HTTP"}, args...)...)
	s.Dir = dir
	out := must.Do(s.StdoutPipe())(t)
	require.NoError(t, s.Start())
	lines := make(chan string)
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if addr, ok := strings.CutPrefix(sc.Text(), "ACCEPT "); ok {
				select {
				case lines <- addr:
				case <-ctx.Done():
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range lines { // before Wait, which closes the pipe
		}
		_ = s.Wait() // killed
	})
	addr, ok := <-lines
	require.True(t, ok, "s_server %v does not start", args)
	return addr
}

var rsa2048 = []string{"-newkey", "rsa:2048"}

// BMCs with old TLS are not unreachable: the error says what they lack.
func TestOldTLS(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		server, req []string
		hint        string
		withRSA     bool // the hint for a device that has the opt-in
	}{
		"RSA key exchange": {[]string{"-tls1_2", "-cipher", "AES128-SHA"}, rsa2048, "set tls.rsaKeyExchange in hosts.d", false},
		"DHE":              {[]string{"-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"}, rsa2048, "if it has only DHE", false},
		"DHE, with the opt-in": {[]string{"-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256"}, rsa2048,
			"not even with tls.rsaKeyExchange", true},
		"TLS 1.1":         {[]string{"-tls1_1", "-cipher", "ALL:@SECLEVEL=0"}, rsa2048, "only TLS 1.1 or older", false},
		"negative serial": {nil, append([]string{"-set_serial", "-5"}, rsa2048...), "create a new one on the BMC", false},
		"key of 768 bits": {[]string{"-tls1_2", "-cipher", "ALL:@SECLEVEL=0"}, []string{"-newkey", "rsa:768"}, "2048 bits", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := oldServer(t, tc.server, tc.req)
			d.TLS = bmc.TLS{RSAKeyExchange: tc.withRSA, InsecureSkipVerify: true} // a trust would hide the rest
			_, err := open(t, d, timing).Read(t.Context())
			bmctest.Failed(t, err, bmc.KindTLS)
			assert.Contains(t, err.Error(), tc.hint)
		})
	}
}

// A certificate that cannot be used is named, also as the one that is to be trusted.
func TestUnusableCA(t *testing.T) {
	t.Parallel()
	d := oldServer(t, nil, append([]string{"-set_serial", "-5"}, rsa2048...))
	_, err := redfish.New(d, timing)
	bmctest.Failed(t, err, bmc.KindTLS)
	assert.Contains(t, err.Error(), "negative serial number")
}

// An old server that knows no alert for it chooses its own version.
func TestServerThatChoosesTLS11(t *testing.T) {
	hello := append([]byte{0x16, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2}, make([]byte, 32)...)           // TLS 1.1, a random value,
	_, err := open(t, answeringHello(t, append(hello, 0, 0, 0x2f, 0)), timing).Read(t.Context()) // no session, a cipher suite
	bmctest.Failed(t, err, bmc.KindTLS)
	assert.Contains(t, err.Error(), "only TLS 1.1 or older")
}

// The opt-in reaches OpenSSL without any other key exchange; what is trusted stays.
func TestRSAKeyExchange(t *testing.T) {
	t.Parallel()
	d := oldServer(t, []string{"-tls1_2", "-cipher", "AES128-SHA"}, rsa2048)
	d.TLS.RSAKeyExchange = true
	assert.Equal(t, bmc.On, bmctest.Read(t, open(t, d, timing)).State)

	other := start(t, redfishsim.Options{})
	d.TLS.CA = other.CAFile()
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindTLS)
	assert.Contains(t, err.Error(), "certificate")
}

// A BMC of the year 2012, like iDRAC 7: only RSA key exchange.
func TestBMCWithRSAKeyExchangeOnly(t *testing.T) {
	sim := start(t, redfishsim.Options{UUID: uuid1, CipherSuite: tls.TLS_RSA_WITH_AES_128_CBC_SHA})
	d := hostOf(t, sim)
	_, err := open(t, d, timing).Read(t.Context())
	bmctest.Failed(t, err, bmc.KindTLS)
	d.TLS.RSAKeyExchange = true
	offAndOn(t, sim, d)
}

// The opt-in adds; it takes nothing away.
func TestRSAKeyExchangeIsAnAddition(t *testing.T) {
	t.Parallel()
	for _, suite := range tls.CipherSuites() {
		if suite.SupportedVersions[0] == tls.VersionTLS13 {
			continue
		}
		sim := start(t, redfishsim.Options{UUID: uuid1, CipherSuite: suite.ID})
		d := hostOf(t, sim)
		d.TLS.RSAKeyExchange = true
		assert.Equal(t, bmc.On, bmctest.Read(t, open(t, d, timing)).State, suite.Name)
	}
}

// A service that ends each connection signs once for a Client. Another Client trusts nothing that this one has seen:
// so it is after a change of the pin, of the CA or of the account.
func TestTLSSessionIsResumedByItsClientOnly(t *testing.T) {
	for name, suite := range map[string]uint16{"TLS 1.3": 0, "TLS 1.2": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, redfishsim.Options{CipherSuite: suite})
			sim.Faults(func(f *redfishsim.Faults) { f.CloseConnections = true })
			d := hostOf(t, sim)
			d.TLS.PinSHA256 = sim.SPKI()
			resumed := func(c *redfish.Client) (all []bool) {
				sim.ResetRequests()
				bmctest.Read(t, c)
				for _, r := range sim.Requests() {
					all = append(all, r.Resumed)
				}
				return all
			}
			c := open(t, d, timing)
			assert.Equal(t, []bool{false, true}, resumed(c), "the login, and the system")
			assert.Equal(t, []bool{true}, resumed(c))
			assert.Equal(t, []bool{false, true}, resumed(open(t, d, timing)), "of another Client")

			d.TLS.PinSHA256 = start(t, redfishsim.Options{}).SPKI()
			_, err := open(t, d, timing).Read(t.Context())
			bmctest.Failed(t, err, bmc.KindTLS)
		})
	}
}

// A service that cannot resume a session fails once for a Client, not at each second connection.
func TestServiceThatCannotResume(t *testing.T) {
	sim := start(t, redfishsim.Options{})
	sim.Faults(func(f *redfishsim.Faults) { f.CloseConnections, f.NoResumption = true, true })
	c := open(t, hostOf(t, sim), timing)
	_, err := c.Read(t.Context())
	require.Error(t, err)
	for range 3 {
		bmctest.Read(t, c)
	}
}

// What fails in the handshake and may pass is no disagreement.
func TestHandshakeThatIsCut(t *testing.T) {
	_, err := open(t, answeringHello(t, []byte{0x15, 3, 3, 0, 2, 2, 80}), timing).Read(t.Context()) // internal_error
	bmctest.Failed(t, err, bmc.KindUnreachable)
}

// answeringHello is a service that answers each ClientHello with these bytes.
func answeringHello(t *testing.T, answer []byte) bmc.Device {
	t.Helper()
	l := must.Do(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write(answer)
			_ = c.Close()
		}
	}()
	d := hostOf(t, start(t, redfishsim.Options{}))
	d.Endpoint.Port = l.Addr().(*net.TCPAddr).Port
	return d
}
