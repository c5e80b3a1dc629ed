package config

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unique"

	"github.com/fenced/fenced/internal/bmc"
)

// maxPassword bounds the file of a password; no BMC takes more than a few
// dozen bytes.
const maxPassword = 4096

// maxIPMIPassword is the longest that IPMI 2.0 carries, in bytes; a BMC would cut the
// rest. The key of the BMC (K_g) has the same limit.
const maxIPMIPassword = 20

// ReadPasswords returns the host with the passwords that stand in files and
// systemd credentials. They are read at each use, so that a rotated file needs
// no restart; a credential is what systemd gave at the start. A device whose
// password cannot be read is Unusable; the others serve without it.
func (e *HostEntry) ReadPasswords(ctx context.Context) bmc.Host {
	files, _ := ctx.Value(onceKey{}).(*passwordFiles)
	h := e.Host
	h.Levels = make([]bmc.Level, len(e.Levels))
	for i, l := range e.Levels {
		h.Levels[i].Devices = slices.Clone(l.Devices)
		for j, d := range l.Devices {
			if err := e.Passwords[i][j].into(&d, files); err != nil {
				d.Unusable = fmt.Errorf("%s: read the password of %s: %w", e.Source, e.Name, err)
			}
			h.Levels[i].Devices[j] = d
		}
	}
	return h
}

// place is where the password stands, for messages; "" if only the cluster's API can give it.
func (s PasswordSource) place() string {
	switch {
	case s.File != "":
		return "file " + s.File
	case s.Credential != "":
		return "systemd credential " + s.Credential
	}
	return ""
}

// CheckCredentials finds the systemd credentials that are missing, empty or too long: the hosts that need them cannot be
// fenced. Other than a file, nobody can correct one while the daemon runs.
func CheckCredentials(hosts []*HostEntry) (errs []error) {
	for _, e := range hosts {
		for i, l := range e.Passwords {
			for j, s := range l {
				if s.Credential == "" {
					continue
				}
				d := e.Levels[i].Devices[j]
				if err := (PasswordSource{Credential: s.Credential}).into(&d, nil); err != nil {
					errs = append(errs, InPart{fmt.Errorf("%s.credential: %w", e.placeOf(i, j), err)})
				}
			}
		}
	}
	return errs
}

// into reads what the device needs. A Secret only the cluster's API can give.
func (s PasswordSource) into(d *bmc.Device, files *passwordFiles) error {
	if s.File != "" || s.Credential != "" {
		password, err := s.read(files)
		if err != nil {
			return err
		}
		if err := fits(password, *d); err != nil {
			return err
		}
		d.Password, d.PasswordFrom = password, unique.Make(s.place()).Value() // of thousands of devices
	}
	if s.KgFile != "" {
		key, err := readBMCKey(s.KgFile, files)
		if err != nil {
			return fmt.Errorf("kgFile: %w", err)
		}
		d.BMCKey = key
	}
	values := maps.Clone(d.SecretParameters) // the entry has them without their values
	if values == nil && len(s.Parameters) > 0 {
		values = map[string]bmc.Secret{}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		value, err := files.read(s.Parameters[name])
		if err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
		values[name] = value
	}
	d.SecretParameters = values
	return nil
}

// fits returns the error of a password that is too long for its device.
func fits(password bmc.Secret, d bmc.Device) error {
	if n := len(password.Reveal()); n > maxIPMIPassword && d.Endpoint.Protocol == bmc.ProtocolIPMI {
		return fmt.Errorf("it has %d bytes, and IPMI 2.0 takes %d: set a shorter one at the BMC", n, maxIPMIPassword)
	}
	return nil
}

// passwordFiles are those that one check of the files, or one reading of the inventory, has read, each once: thousands of hosts may name the same.
// Without them each use reads.
type passwordFiles struct {
	mu   sync.Mutex
	seen map[string]checkedPassword
}

type checkedPassword struct {
	password bmc.Secret
	err      error
}

type onceKey struct{}

// PasswordsOnce returns a context in which ReadPasswords reads each file once.
func PasswordsOnce(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, &passwordFiles{seen: map[string]checkedPassword{}})
}

func (f *passwordFiles) read(path string) (bmc.Secret, error) {
	if f == nil {
		return readSecret(path)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.seen[path]
	if !ok {
		p.password, p.err = readSecret(path)
		f.seen[path] = p
	}
	return p.password, p.err
}

func (s PasswordSource) read(files *passwordFiles) (bmc.Secret, error) {
	if s.Credential == "" {
		return files.read(s.File)
	}
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return bmc.Secret{}, fmt.Errorf("systemd gave this process no credential %[1]s; add LoadCredential=%[1]s:PATH to the unit", s.Credential)
	}
	secret, err := files.read(filepath.Join(dir, s.Credential))
	if errors.Is(err, fs.ErrNotExist) {
		return secret, fmt.Errorf("systemd gave this process no credential %[1]s; add LoadCredential=%[1]s:PATH to the unit, and restart it: %[2]w", s.Credential, err)
	}
	return secret, err
}

// readSecret names only the path of a file that is there in its errors, never what
// is in the file. // I25
func readSecret(path string) (bmc.Secret, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return bmc.Secret{}, hidePath(err)
	}
	if fi.Mode().Perm()&0o007 != 0 {
		return bmc.Secret{}, fmt.Errorf("%s is open to everyone (mode %04o); run: %s", path, fi.Mode().Perm(), HideSecret(path))
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

// readBMCKey reads a key of a BMC (K_g): text, or hexadecimal digits after 0x. Its errors
// name only the path. // I25
func readBMCKey(path string, files *passwordFiles) (bmc.Secret, error) {
	secret, err := files.read(path)
	if err != nil {
		return bmc.Secret{}, err
	}
	key := secret.Reveal()
	if digits, ok := strings.CutPrefix(key, "0x"); ok {
		b, err := hex.DecodeString(digits)
		if err != nil {
			return bmc.Secret{}, fmt.Errorf("what follows 0x in %s is not an even number of hexadecimal digits", path)
		}
		key = string(b)
	}
	switch {
	case len(key) > maxIPMIPassword:
		return bmc.Secret{}, fmt.Errorf("%s holds %d bytes, and a key (K_g) of IPMI 2.0 has at most %d", path, len(key), maxIPMIPassword)
	case strings.Trim(key, "\x00") == "":
		return bmc.Secret{}, fmt.Errorf("%s holds only zeros, which is how a BMC without a key (K_g) shows it; leave kgFile out", path)
	}
	return bmc.NewSecret(key), nil
}
