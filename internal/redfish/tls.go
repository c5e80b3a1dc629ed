package redfish

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fenced/fenced/internal/bmc"
)

// tlsConfig is how the BMC's certificate is verified: by its chain, by its public
// key if a pin is given without a CA, or by both.
func tlsConfig(t bmc.TLS) (*tls.Config, error) {
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Some services end each connection, and their processors need long to sign. The next connection of this Client
		// resumes the TLS session, whose certificate is checked again, by its chain and by the pin. It stands for nothing
		// else: what proves a host off, and who answers, is decided by the Redfish session and the connection. // I1, I8
		ClientSessionCache: &tlsSessions{ClientSessionCache: tls.NewLRUClientSessionCache(1)},
	}
	if t.RSAKeyExchange {
		conf.CipherSuites = withRSAKeyExchange()
	}
	if t.CA != "" {
		b, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, failf(bmc.KindTLS, "read CA file: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(b) {
			return nil, failf(bmc.KindTLS, "CA file %s: %w", t.CA, unusableCA(b))
		}
	}
	if t.PinSHA256 != "" {
		pin, err := parsePin(t.PinSHA256)
		if err != nil {
			return nil, failf(bmc.KindTLS, "%w", err)
		}
		conf.VerifyConnection = func(cs tls.ConnectionState) error { return checkPin(cs, pin) }
		conf.InsecureSkipVerify = t.CA == "" // the pin replaces the chain
	}
	if t.InsecureSkipVerify {
		conf.InsecureSkipVerify = true // configured for this host; a pin is still verified
	}
	return conf, nil
}

// tlsSessions keeps the TLS session of a Client. A service that failed to resume one is not asked for that again: else each
// second handshake with it would fail.
type tlsSessions struct {
	tls.ClientSessionCache
	failed atomic.Bool
}

// Put gets nil when a handshake that resumed the session has failed, and when the session has expired, which is not told apart:
// without resumption a connection only takes longer.
func (c *tlsSessions) Put(key string, s *tls.ClientSessionState) {
	if s == nil {
		c.failed.Store(true)
	}
	if c.failed.Load() {
		s = nil
	}
	c.ClientSessionCache.Put(key, s)
}

// unusableCA returns the error of a CA file that gave no certificate.
func unusableCA(b []byte) error {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("its certificate cannot be used: %w", err)
		}
	}
	return errors.New("it holds no PEM certificate")
}

// withRSAKeyExchange returns the cipher suites of TLS 1.2 that Go offers by
// default, and those with RSA key exchange, which it does not. Whoever records the
// traffic can read it later with the BMC's key. The BMC's identity is verified all
// the same.
func withRSAKeyExchange() []uint16 {
	suites := []uint16{
		tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA256, tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA,
	}
	for _, s := range tls.CipherSuites() {
		if slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			suites = append(suites, s.ID)
		}
	}
	return suites
}

// parsePin parses a SHA-256 in hex, with or without colons, or in base64.
func parsePin(s string) ([]byte, error) {
	s = strings.TrimSpace(s)
	if b, err := hex.DecodeString(strings.ReplaceAll(s, ":", "")); err == nil && len(b) == sha256.Size {
		return b, nil
	}
	if b, err := base64.StdEncoding.DecodeString(s); err == nil && len(b) == sha256.Size {
		return b, nil
	}
	return nil, fmt.Errorf("pin %q is not a SHA-256 in hex or base64", s)
}

// checkPin runs on every handshake, resumed or not.
func checkPin(cs tls.ConnectionState, pin []byte) error {
	if len(cs.PeerCertificates) == 0 {
		return failf(bmc.KindTLS, "the BMC showed no certificate")
	}
	got := sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo)
	if subtle.ConstantTimeCompare(got[:], pin) != 1 {
		return failf(bmc.KindTLS, "the BMC's public key is %s, not the pinned one", hex.EncodeToString(got[:]))
	}
	return nil
}

// handshake is the error of the TLS handshake of one request. It is atomic,
// because a handshake may end after its request.
type handshake struct{ err atomic.Pointer[error] }

// done is for httptrace.ClientTrace.
func (h *handshake) done(_ tls.ConnectionState, err error) {
	if err != nil {
		h.err.Store(&err)
	}
}

// explain returns err of the request with its Kind and a hint, if BMC and fenced
// could not agree on TLS. Errors of the network and of the certificate check stay
// as they are.
func (h *handshake) explain(err error, t bmc.TLS) error {
	failed := h.err.Load()
	if failed == nil || !errors.Is(err, *failed) || !isDisagreement(err) {
		return err
	}
	return &hintError{tlsHint(err, t), failf(bmc.KindTLS, "no TLS connection: %w", err)}
}

// The alerts with which a TLS server refuses what a client offers. An alert like
// internal_error may pass, so it stays an error of the network.
const (
	alertHandshakeFailure     tls.AlertError = 40
	alertIllegalParameter     tls.AlertError = 47
	alertProtocolVersion      tls.AlertError = 70
	alertInsufficientSecurity tls.AlertError = 71
	alertMissingExtension     tls.AlertError = 109
	alertUnrecognizedName     tls.AlertError = 112
)

var refusals = []tls.AlertError{
	alertHandshakeFailure, alertIllegalParameter, alertProtocolVersion, alertInsufficientSecurity,
	alertMissingExtension, alertUnrecognizedName,
}

// isDisagreement reports whether err of a handshake means that both sides were
// there and could not agree.
func isDisagreement(err error) bool {
	if _, known := errors.AsType[*bmc.KindError](err); known {
		return false
	}
	if _, known := errors.AsType[*tls.CertificateVerificationError](err); known {
		return false
	}
	if _, noTLS := errors.AsType[tls.RecordHeaderError](err); noTLS {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return slices.ContainsFunc(refusals, func(a tls.AlertError) bool { return isAlert(err, a) })
	}
	var network net.Error
	return !errors.As(err, &network) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// isAlert reports whether the server sent this alert. crypto/tls has a type for it
// only in QUIC; the text is the same.
func isAlert(err error, a tls.AlertError) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" && op.Err.Error() == a.Error()
}

// tlsHint returns what to do about err of a handshake; "" if nothing is known.
func tlsHint(err error, t bmc.TLS) string {
	text := err.Error()
	switch {
	case isAlert(err, alertProtocolVersion), strings.Contains(text, "unsupported protocol version"):
		return "the BMC offers only TLS 1.1 or older, and fenced needs TLS 1.2; update its firmware, or use driver ipmi"
	case isAlert(err, alertHandshakeFailure) && !t.RSAKeyExchange, isAlert(err, alertInsufficientSecurity) && !t.RSAKeyExchange:
		return "the BMC offers no cipher suite that fenced accepts; update its firmware; if it has only RSA key exchange, " +
			"set tls.rsaKeyExchange in hosts.d; if it has only DHE, use driver ipmi or a fence agent"
	case isAlert(err, alertHandshakeFailure), isAlert(err, alertInsufficientSecurity):
		return "the BMC offers no cipher suite that fenced accepts, not even with tls.rsaKeyExchange; it may have only DHE; " +
			"update its firmware, or use driver ipmi or a fence agent"
	case strings.Contains(text, "failed to parse certificate"):
		return "the BMC's certificate violates the standard; create a new one on the BMC"
	case strings.Contains(text, "keys are insecure"), strings.Contains(text, "RSA key"):
		return "the key of the BMC's certificate has an unusable length; create a new one with 2048 bits on the BMC"
	}
	return ""
}
