package bmclib

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/fenced/fenced/internal/bmc"
)

// tlsConfig verifies the BMC's certificate with the entry's CA or the system's
// certificates. bmclib by default verifies nothing.
func tlsConfig(t bmc.TLS) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CA == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA file: %w", err)
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s contains no PEM certificate", t.CA)
	}
	return conf, nil
}
