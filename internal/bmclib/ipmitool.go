package bmclib

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/bmc-toolbox/bmclib/v2/providers/ipmitool"

	"github.com/fenced/fenced/internal/bmc"
)

// systemDirs are where packages install ipmitool. PATH is not used, because the
// program gets the password.
var systemDirs = []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"}

// newIpmitool creates the provider that runs ipmitool from one of dirs.
func newIpmitool(d bmc.Device, dirs []string) (provider, error) {
	path, err := findIpmitool(dirs)
	if err != nil {
		return nil, err
	}
	suite, err := suiteOf(d.CipherSuites)
	if err != nil {
		return nil, err
	}
	// One suite: otherwise bmclib runs ipmitool with 3 and then with 17.
	return ipmitool.New(host(d), d.Username, d.Password.Reveal(), ipmitool.WithPort(port(d)),
		ipmitool.WithCipherSuite(suite), ipmitool.WithIpmitoolPath(path))
}

func findIpmitool(dirs []string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, "ipmitool")
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", fmt.Errorf("find ipmitool: %w", err)
		case info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0:
			return path, nil
		}
	}
	return "", errors.New("ipmitool is not installed; install the package ipmitool, or remove driver: bmclib to use the native driver")
}

// suiteOf is the one cipher suite for ipmitool.
func suiteOf(suites []int) (string, error) {
	if len(suites) == 0 {
		return "17", nil
	}
	if s := suites[0]; s == 17 || s == 3 {
		return strconv.Itoa(s), nil
	}
	return "", fmt.Errorf("cipher suite %d is not allowed; use 17 or 3, which encrypt and sign", suites[0])
}
