package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// HostEntry is one host of hosts.d: the ways to its power without the passwords,
// and where the passwords are.
type HostEntry struct {
	bmc.Host
	Node    string
	Cluster string
	// Passwords stand beside Levels, one for each device.
	Passwords [][]PasswordSource
}

// PasswordSource is where the password of one device is. Both are empty when a
// Secret of the cluster holds it; bmc.Device names that.
type PasswordSource struct {
	File       string
	Credential string // of systemd
}

// hostsFile is the schema of a file in hosts.d.
type hostsFile struct {
	Hosts []hostYAML `yaml:"hosts"`
}

type hostYAML struct {
	Line int `yaml:"-"`

	Node      string      `yaml:"node" is:"nodeName" empty:"no"`
	Cluster   string      `yaml:"cluster"`
	UUID      string      `yaml:"uuid" is:"uuid"`
	Identity  string      `yaml:"identity" is:"required|pinned|off"`
	BMC       deviceYAML  `yaml:"bmc"`
	Levels    []levelYAML `yaml:"levels"`
	Protected bool        `yaml:"protected"`
}

type levelYAML struct {
	Line int `yaml:"-"`

	Devices []deviceYAML `yaml:"devices"`
}

type deviceYAML struct {
	Line int `yaml:"-"` // 0 = the entry has none

	Address      string  `yaml:"address" is:"address" empty:"no"`
	Username     string  `yaml:"username"`
	PasswordFile string  `yaml:"passwordFile" is:"path"`
	Credential   string  `yaml:"credential" is:"credential"`
	Secret       string  `yaml:"secret" is:"secretRef"`
	Driver       string  `yaml:"driver" is:"auto|ipmi|redfish" later:"bmclib|fence-agent"`
	CipherSuites []int   `yaml:"cipherSuites" is:"cipherSuite"`
	TLS          tlsYAML `yaml:"tls"`
}

type tlsYAML struct {
	CA                 string `yaml:"ca" is:"path"`
	PinSHA256          string `yaml:"pinSHA256" is:"pin"`
	InsecureSkipVerify bool   `yaml:"insecureSkipVerify"`
}

// LoadHosts reads the files of c.Hosts in name order. Its error joins every
// problem, each naming file and line; two entries that could mean one host are
// among them. // I9
func LoadHosts(c Config) ([]HostEntry, error) {
	files, err := listFiles(c.Hosts)
	if err != nil {
		return nil, fmt.Errorf("load hosts: %w", err)
	}
	var hosts []HostEntry
	var errs []error
	for _, file := range files {
		data, err := readBounded(file, maxFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("load hosts: %w", err))
			continue
		}
		list, bad := readHosts(c, file, data)
		hosts, errs = append(hosts, list...), append(errs, bad...)
	}
	errs = append(errs, duplicates(hosts)...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return hosts, nil
}

// readHosts reads one file; entries with an error are left out.
func readHosts(c Config, file string, data []byte) ([]HostEntry, []error) {
	root, err := parseYAML(file, data)
	if err != nil {
		return nil, []error{err}
	}
	if root == nil {
		return nil, nil
	}
	var f hostsFile
	r := reader{file: file, dir: filepath.Dir(file)}
	r.mapping(root, "", reflect.ValueOf(&f).Elem())
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	var hosts []HostEntry
	for i, y := range f.Hosts {
		before := len(r.errs)
		e := r.host(c, fmt.Sprintf("hosts[%d]", i), y)
		if len(r.errs) == before {
			hosts = append(hosts, e)
		}
	}
	return hosts, r.errs
}

// host turns one entry of the file into a HostEntry.
func (r *reader) host(c Config, key string, y hostYAML) HostEntry {
	e := HostEntry{Node: y.Node, Cluster: y.Cluster}
	if y.Node == "" {
		r.fail(y.Line, key, "node is missing")
	}
	names := c.ClusterNames()
	switch {
	case y.Cluster == "" && len(names) == 1:
		e.Cluster = names[0]
	case y.Cluster == "":
		r.fail(y.Line, key, "cluster is missing; there are several: %s", strings.Join(names, ", "))
	case !slices.Contains(names, y.Cluster):
		r.fail(y.Line, key+".cluster", "there is no cluster %q in %s%s", y.Cluster, c.File, didYouMean(y.Cluster, names))
	}
	e.Host = bmc.Host{
		Name:         e.Cluster + "/" + e.Node,
		PinnedUUID:   y.UUID,
		IdentityMode: y.Identity,
		Protected:    y.Protected,
		Source:       r.at(y.Line),
	}
	if e.IdentityMode == "" {
		e.IdentityMode = c.Guards.Identity
	}
	if d, at, ok := r.oneDevice(key, y); ok {
		device, password := r.device(at, d)
		device.SystemUUID = e.PinnedUUID
		e.Levels = []bmc.Level{{Devices: []bmc.Device{device}}}
		e.Passwords = [][]PasswordSource{{password}}
	}
	return e
}

// oneDevice picks the device of bmc, or of levels while that has only one.
func (r *reader) oneDevice(key string, y hostYAML) (d deviceYAML, at string, ok bool) {
	switch {
	case y.BMC.Line != 0 && len(y.Levels) > 0:
		r.fail(y.Line, key, "has both bmc and levels; bmc is short for one level with one device")
	case y.BMC.Line != 0:
		return y.BMC, key + ".bmc", true
	case len(y.Levels) == 0:
		r.fail(y.Line, key, "bmc is missing")
	case len(y.Levels) > 1:
		r.fail(y.Levels[1].Line, key+".levels", "a second power level is not supported by this version")
	case len(y.Levels[0].Devices) == 0:
		r.fail(y.Levels[0].Line, key+".levels[0]", "devices is missing")
	case len(y.Levels[0].Devices) > 1:
		r.fail(y.Levels[0].Devices[1].Line, key+".levels[0].devices", "a second device is not supported by this version")
	default:
		return y.Levels[0].Devices[0], key + ".levels[0].devices[0]", true
	}
	return d, "", false
}
