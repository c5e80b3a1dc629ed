// Package certs makes the certificates of the servers and the users of a test's cluster.
package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Authority signs the certificates of servers and of users. One CA is enough for a cluster that runs
// for minutes.
type Authority struct {
	Cert *x509.Certificate
	PEM  []byte
	key  crypto.Signer
}

// Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority makes an authority with a key of its own.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's CA key: %w", err)
	}
	tmpl := template("fenced-test-ca")
	tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the cluster's CA: %w", err)
	}
	return &Authority{Cert: cert, key: key, PEM: encode("CERTIFICATE", der)}, nil
}

// Server makes a certificate for a server on 127.0.0.1, and on these addresses.
func (a *Authority) Server(also ...net.IP) (Pair, error) {
	tmpl := template("fenced-test-server")
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	tmpl.IPAddresses = append([]net.IP{net.IPv4(127, 0, 0, 1)}, also...)
	tmpl.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default.svc"}
	return a.sign(tmpl)
}

// TLS makes a certificate for a server of this process.
func (a *Authority) TLS(also ...net.IP) (tls.Certificate, error) {
	p, err := a.Server(also...)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(p.Cert, p.Key)
}

// User makes a client certificate. Kubernetes reads the user from the common name, and the groups from
// the organisations.
func (a *Authority) User(name string, groups []string) (Pair, error) {
	tmpl := template(name)
	tmpl.Subject.Organization = groups
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(tmpl)
}

func (a *Authority) sign(tmpl *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key for %s: %w", tmpl.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.Cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", tmpl.Subject.CommonName, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode the key of %s: %w", tmpl.Subject.CommonName, err)
	}
	return Pair{Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}, nil
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		panic(fmt.Sprintf("certs: crypto/rand never fails since Go 1.24, and did: %v", err))
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(48 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
