package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fenced/fenced/internal/bmc"
)

// maxPassword bounds the file of a password; no BMC takes more than a few
// dozen bytes.
const maxPassword = 4096

// ErrNoPassword marks an entry whose password is in a Secret of its cluster,
// which only the daemon can read.
var ErrNoPassword = errors.New("the password is in a Secret")

// ReadPassword reads the password from its file or systemd credential. It is
// read at each use, so that a rotated file needs no restart; a credential is
// what systemd gave at the start.
func (e HostEntry) ReadPassword() (bmc.Secret, error) {
	path := e.PasswordFile
	switch {
	case e.SecretName != "":
		return bmc.Secret{}, fmt.Errorf("%s: read the password of %s: %w", e.Source, e.Name, ErrNoPassword)
	case e.Credential != "":
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" {
			return bmc.Secret{}, fmt.Errorf("%s: read credential %s: systemd gave this process none; add LoadCredential=%s:PATH to the unit",
				e.Source, e.Credential, e.Credential)
		}
		path = filepath.Join(dir, e.Credential)
	}
	secret, err := readSecret(path)
	if err != nil {
		return bmc.Secret{}, fmt.Errorf("%s: read the password of %s: %w", e.Source, e.Name, err)
	}
	return secret, nil
}

// readSecret names only the path in its errors, never what is in the file. // I25
func readSecret(path string) (bmc.Secret, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return bmc.Secret{}, err
	}
	if fi.Mode().Perm()&0o007 != 0 {
		return bmc.Secret{}, fmt.Errorf("%s is open to everyone (mode %04o); run: chmod o= %s", path, fi.Mode().Perm(), path)
	}
	data, err := readBounded(path, maxPassword)
	if err != nil {
		return bmc.Secret{}, err
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return bmc.Secret{}, fmt.Errorf("%s is empty", path)
	}
	return bmc.NewSecret(text), nil
}

// openRegular opens a regular file; a pipe or a device in its place would keep
// the daemon waiting.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
