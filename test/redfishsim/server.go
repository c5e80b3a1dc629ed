package redfishsim

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// Server is a running Redfish service.
type Server struct {
	opts    Options
	id      identity
	dir     string // of the CA file
	http    *http.Server
	addr    string
	systems []*System
	stop    func()
	stopped chan struct{}

	mu       sync.Mutex
	faults   Faults
	sessions map[string]string // ID -> token
	logins   int
	wrong    int // ones
	requests []Request
	conns    int
	open     map[net.Conn]bool
	held     []net.Conn // accepted, never to be answered
	booted   time.Time
}

// Start runs a service until Stop.
func Start(o Options) (*Server, error) {
	o = o.withDefaults()
	id, err := newIdentity(o.CertificateUntil, o.CipherSuite, o.Key)
	if err != nil {
		return nil, fmt.Errorf("start Redfish simulator: %w", err)
	}
	dir, err := os.MkdirTemp("", "redfishsim")
	if err != nil {
		return nil, fmt.Errorf("start Redfish simulator: %w", err)
	}
	s := &Server{
		opts: o, id: id, dir: dir, sessions: map[string]string{}, stopped: make(chan struct{}),
		open: map[net.Conn]bool{}, booted: time.Now(),
	}
	for _, so := range o.Systems {
		s.systems = append(s.systems, &System{srv: s, opts: so, on: !so.Off})
	}
	if err := s.serve(); err != nil {
		_ = os.RemoveAll(dir) // the first error is the one to tell
		return nil, fmt.Errorf("start Redfish simulator: %w", err)
	}
	return s, nil
}

func (s *Server) serve() error {
	if err := os.WriteFile(s.CAFile(), s.id.caPEM, 0o600); err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.opts.Addr)
	if err != nil {
		return err
	}
	s.addr = l.Addr().String()
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 2 * time.Minute, // a busy machine delays a client's TLS handshake
		TLSConfig:         s.tlsConfig(),
		// Refused handshakes are what tests provoke, not news.
		ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateNew || state == http.StateClosed {
				s.track(c, state == http.StateNew)
			}
		},
		// BMCs speak HTTP/1.1, and a cut connection must cut one client only.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.http.ServeTLS(&listener{l, s}, "", "") // ends with ErrServerClosed, by Stop
	}()
	s.stop = sync.OnceFunc(func() {
		close(s.stopped)
		s.cut()                 // also what net/http no longer knows
		_ = s.http.Close()      // only reports listeners closed twice
		_ = os.RemoveAll(s.dir) // a stray directory harms nobody
		<-done
		for _, c := range s.held { // nobody adds to them any more
			_ = c.Close()
		}
	})
	return nil
}

func (s *Server) tlsConfig() *tls.Config {
	conf := &tls.Config{Certificates: []tls.Certificate{s.id.cert}, MinVersion: tls.VersionTLS12}
	if s.opts.CipherSuite != 0 {
		conf.CipherSuites, conf.MaxVersion = []uint16{s.opts.CipherSuite}, tls.VersionTLS12
	}
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		const preSharedKey = 41 // the extension with which a client of TLS 1.3 resumes
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.faults.NoResumption && slices.Contains(hello.Extensions, preSharedKey) {
			return nil, errors.New("this service cannot resume a session")
		}
		return nil, nil
	}
	return conf
}

// Stop ends the service, cutting every connection; it may be called more than once.
func (s *Server) Stop() { s.stop() }

// Addr is the host:port that speaks TLS.
func (s *Server) Addr() string { return s.addr }

// URL is the root of the service, without a path.
func (s *Server) URL() string { return "https://" + s.addr }

// BMCAddress is the address of the first system as Metal3 writes it.
func (s *Server) BMCAddress() string { return "redfish://" + s.addr + s.systems[0].URI() }

// CAPEM is the certificate of the CA that signed the service's certificate.
func (s *Server) CAPEM() []byte { return s.id.caPEM }

// CAFile is the path of a file with CAPEM, there until Stop.
func (s *Server) CAFile() string { return filepath.Join(s.dir, "ca.pem") }

// SPKI is the SHA-256 of the service's public key, in hex: a pin.
func (s *Server) SPKI() string { return s.id.spki }

// System is the i-th system of the collection, from 0.
func (s *Server) System(i int) *System { return s.systems[i] }

// Power says whether the first system's host is truly on.
func (s *Server) Power() bool { return s.systems[0].Power() }

// Source is Power in the form a simulated kubelet asks.
func (s *Server) Source(context.Context) (on bool, err error) { return s.Power(), nil }

// SetPower switches the first system's host behind the BMC's back. It never fails.
func (s *Server) SetPower(on bool) error { return s.systems[0].SetPower(on) }

// IgnoreOff makes the BMC accept the first system's power off and do nothing.
func (s *Server) IgnoreOff(ignore bool) error { return s.systems[0].IgnoreOff(ignore) }

// LieOff makes the BMC say that the first system is off, whatever it is.
func (s *Server) LieOff(lie bool) error { return s.systems[0].LieOff(lie) }

// Quirks changes what the BMC does wrong about the first system.
func (s *Server) Quirks(change func(*Quirks)) { s.systems[0].Quirks(change) }

// Options describe a service. The zero value is one host that is on, with a
// random UUID, behind the account admin, password secret.
type Options struct {
	// Addr is where to listen; empty lets the kernel choose on loopback.
	Addr string
	// User and Password are the one account.
	User, Password string
	// UUID is that of the one system, when Systems is empty; empty is random.
	UUID string
	// Off starts that one system powered off.
	Off bool
	// Systems are the hosts behind the service, in the collection's order.
	Systems []SystemOptions
	// Resources are all that the service shows, by path without a slash at the end; nil shows its own. The
	// PowerState of a system there is what the BMC makes of the truth.
	Resources map[string]map[string]any
	// Model and Firmware are what the BMC says it is itself.
	Model, Firmware string
	// CertificateUntil is the end of its certificate; zero is a day from now.
	CertificateUntil time.Time
	// CipherSuite is the only one that the service accepts, over TLS 1.2; 0 is Go's own
	// choice.
	CipherSuite uint16
	// Key is that of its certificate; nil makes one that the cipher suite can use.
	Key crypto.Signer
}

// SystemOptions describe one host behind the service.
type SystemOptions struct {
	// ID is the last part of its URI; empty is its number, from 1.
	ID string
	// UUID is what it says it is; empty is random.
	UUID string
	// Serial is its serial number; empty is SN- and the ID.
	Serial string
	// MACs are those of its network interfaces; empty is one, made from its UUID.
	MACs []string
	// RestorePolicy is its PowerRestorePolicy; empty is LastState.
	RestorePolicy string
	// Off starts it powered off.
	Off bool
}

// withDefaults fills what o leaves open.
func (o Options) withDefaults() Options {
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	o.User = cmp.Or(o.User, "admin")
	o.Password = cmp.Or(o.Password, "secret")
	o.Model = cmp.Or(o.Model, "SimBMC")
	o.Firmware = cmp.Or(o.Firmware, "1.0.0")
	if o.CertificateUntil.IsZero() {
		o.CertificateUntil = time.Now().Add(24 * time.Hour)
	}
	if len(o.Systems) == 0 {
		o.Systems = []SystemOptions{{UUID: o.UUID, Off: o.Off}}
	}
	systems := make([]SystemOptions, len(o.Systems))
	for i, s := range o.Systems {
		s.ID = cmp.Or(s.ID, fmt.Sprint(i+1))
		s.UUID = cmp.Or(s.UUID, string(uuid.NewUUID()))
		s.Serial = cmp.Or(s.Serial, "SN-"+s.ID)
		if len(s.MACs) == 0 {
			s.MACs = []string{macOf(s.UUID)}
		}
		s.RestorePolicy = cmp.Or(s.RestorePolicy, "LastState")
		systems[i] = s
	}
	o.Systems = systems
	return o
}

// macOf is an address that is as unique as the UUID, in a range that no maker
// of network interfaces uses.
func macOf(uuid string) string {
	sum := sha256.Sum256([]byte(uuid))
	return fmt.Sprintf("AC:DE:48:%02X:%02X:%02X", sum[0], sum[1], sum[2])
}

// identity is the service's certificate, signed by a CA of its own.
type identity struct {
	cert  tls.Certificate
	caPEM []byte
	spki  string // SHA-256 of the leaf's SubjectPublicKeyInfo, hex
}

// newIdentity makes a certificate that a cipher suite can use; 0 is any.
func newIdentity(until time.Time, suite uint16, key crypto.Signer) (identity, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("make CA key: %w", err)
	}
	if key == nil {
		if key, err = newKey(suite); err != nil {
			return identity{}, fmt.Errorf("make service key: %w", err)
		}
	}
	began := until.Add(-365 * 24 * time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Redfish simulator CA"},
		NotBefore: began, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "Redfish simulator"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return identity{}, fmt.Errorf("sign CA certificate: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return identity{}, fmt.Errorf("sign service certificate: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return identity{}, fmt.Errorf("parse service certificate: %w", err)
	}
	sum := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	return identity{
		cert:  tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		caPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		spki:  hex.EncodeToString(sum[:]),
	}, nil
}

// newKey is an RSA key for the suites that need one, else a shorter one.
func newKey(suite uint16) (crypto.Signer, error) {
	if strings.Contains(tls.CipherSuiteName(suite), "_RSA_") {
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// Restart is a restart of the BMC, not of its host: every connection is cut,
// sessions are forgotten unless Faults.KeepSessions, and for down each request
// gets 503.
func (s *Server) Restart(down time.Duration) {
	s.mu.Lock()
	if !s.faults.KeepSessions {
		clear(s.sessions)
	}
	s.booted = time.Now().Add(down)
	s.mu.Unlock()
	s.cut()
}

// booting says whether a restart is under way. s.mu is held.
func (s *Server) booting() bool { return time.Now().Before(s.booted) }
