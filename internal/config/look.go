package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/fenced/fenced/internal/bmc"
)

// maxCA bounds a file of certificates.
const maxCA = 1 << 20

// checkFiles warns of the files that a device needs and that are not as they must be.
// They are read again at each use, and may be mended while the daemon runs: no
// host keeps it from starting.
func (r *reader) checkFiles(key string, line int, d bmc.Device, s PasswordSource) {
	if s.File != "" {
		r.warn(line, key+".passwordFile", PasswordSource{File: s.File}.into(&d))
	}
	if s.KgFile != "" {
		_, err := readBMCKey(s.KgFile)
		r.warn(line, key+".kgFile", err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		_, err := readSecret(s.Parameters[name])
		r.warn(line, key+".secretParameters."+name, err)
	}
	if d.TLS.CA != "" {
		r.warn(line, key+".tls.ca", checkCA(d.TLS.CA))
	}
}

func (r *reader) warn(line int, key string, err error) {
	if err != nil {
		r.warnings = append(r.warnings, fmt.Sprintf("%s: %s: %v", r.at(r.lineOf(key, line)), key, err))
	}
}

func checkCA(path string) error {
	pem, err := readBounded(path, maxCA)
	if err != nil {
		return err
	}
	return orError(x509.NewCertPool().AppendCertsFromPEM(pem), path+" holds no PEM certificate")
}

// hidePath is an error about a file that cannot be opened, without its name:
// somebody may have written the password where the path belongs. // I25
func hidePath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s the file that is named there: %w", e.Op, e.Err)
	}
	return err
}
