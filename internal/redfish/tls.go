package redfish

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// tlsConfig is how the BMC's certificate is verified: by its chain, by its public
// key if a pin is given without a CA, or by both.
func tlsConfig(t bmc.TLS) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
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

// unusableCA is why a CA file gave no certificate.
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
