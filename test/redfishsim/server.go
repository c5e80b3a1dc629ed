package redfishsim

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
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
	id, err := newIdentity(o.CertificateUntil, o.CipherSuite)
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
	s.faults.Latency = o.Latency
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
