package bmclib

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/fenced/fenced/internal/bmc"
)

// tlsConfig verifies the BMC's certificate by the entry's CA or the system's
// pool. bmclib by itself verifies nothing.
func tlsConfig(t bmc.TLS) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CA == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("read CA file: %w", err)
	}
	conf.RootCAs = x509.NewCertPool()
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s holds no PEM certificate", t.CA)
	}
	return conf, nil
}
