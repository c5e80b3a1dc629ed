package redfishsim

import (
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
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// identity is the service's certificate, signed by a CA of its own.
type identity struct {
	cert  tls.Certificate
	caPEM []byte
	spki  string // SHA-256 of the leaf's SubjectPublicKeyInfo, hex
}

// newIdentity makes a certificate that a cipher suite can use; 0 is any.
func newIdentity(until time.Time, suite uint16) (identity, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("make CA key: %w", err)
	}
	key, err := newKey(suite)
	if err != nil {
		return identity{}, fmt.Errorf("make service key: %w", err)
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
