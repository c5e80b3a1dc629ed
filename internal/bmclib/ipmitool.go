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

// systemDirs are where packages install ipmitool. PATH is not asked: the
// password goes to whatever is found.
var systemDirs = []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"}

// newIpmitool makes the provider that runs ipmitool from one of dirs.
func newIpmitool(d bmc.Device, dirs []string) (provider, error) {
	path, err := findIpmitool(dirs)
	if err != nil {
		return nil, err
	}
	suite, err := suiteOf(d.CipherSuites)
	if err != nil {
		return nil, err
	}
	// One suite: without it bmclib runs ipmitool with 3 and then with 17.
	return ipmitool.New(host(d), d.Username, d.Password.Reveal(), ipmitool.WithPort(port(d)),
		ipmitool.WithCipherSuite(suite), ipmitool.WithIpmitoolPath(path))
}

func findIpmitool(dirs []string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, "ipmitool")
		switch info, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", fmt.Errorf("look at ipmitool: %w", err)
		case info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0:
			return path, nil
		}
	}
	return "", errors.New("ipmitool is not installed; install the package ipmitool, or leave driver: bmclib out and use the native driver")
}

// suiteOf is the one cipher suite that ipmitool is told to use.
func suiteOf(suites []int) (string, error) {
	if len(suites) == 0 {
		return "17", nil
	}
	if s := suites[0]; s == 17 || s == 3 {
		return strconv.Itoa(s), nil
	}
	return "", fmt.Errorf("cipher suite %d is not used: only 17 and 3 encrypt and sign", suites[0])
}
