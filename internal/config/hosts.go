package config

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.yaml.in/yaml/v3"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/typo"
)

// HostEntry is one host of hosts.d: the ways to its power without the passwords,
// and where the passwords are.
type HostEntry struct {
	bmc.Host
	Node    string // "" if the entry names a Machine
	Machine string // "namespace/name", "" if the entry names a Node
	Cluster string
	// Passwords stand beside Levels, one for each device. Entries may share them.
	Passwords [][]PasswordSource
	// Refused says why nobody may use the entry: something in it is wrong. It then only says whose it is, and which
	// devices it names as far as they could be read.
	Refused error

	place  place
	places []devicePlace // of each device, in order
}

// place is where an entry stands, for errors: FILE:LINE: hosts[NUMBER].
type place struct {
	file         string
	line, number int
}

func (p place) String() string { return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.key()) }

func (p place) key() string { return fmt.Sprintf("hosts[%d]", p.number) }

// devicePlace is where a device stands: as bmc of its entry if level is -1, or as levels[LEVEL].devices[DEVICE].
type devicePlace struct {
	line          int32
	level, device int8
}

// key is that of the device in the entry with a key.
func (p devicePlace) key(entry string) string {
	if p.level < 0 {
		return entry + ".bmc"
	}
	return fmt.Sprintf("%s.levels[%d].devices[%d]", entry, p.level, p.device)
}

// placeOf is FILE:LINE: KEY of a device.
func (e *HostEntry) placeOf(level, device int) string {
	at := device
	for _, l := range e.Levels[:level] {
		at += len(l.Devices)
	}
	p := e.places[at]
	return fmt.Sprintf("%s:%d: %s", e.place.file, p.line, p.key(e.place.key()))
}

// Of is what the entry is about: the name of a Node, or the "namespace/name" of a
// Machine.
func (e *HostEntry) Of() string { return cmp.Or(e.Machine, e.Node) }

// PasswordSource is where the password of one device is. Both File and
// Credential are empty when a Secret of the cluster holds it, which bmc.Device
// names, and for a fence agent that needs none.
type PasswordSource struct {
	File       string
	Credential string // of systemd
	// KgFile is the file of the BMC's key; empty means that it has none.
	KgFile string
	// Parameters are the files of an agent's secret parameters.
	Parameters map[string]string
}

// hostsFile is the schema of a file in hosts.d.
type hostsFile struct {
	Hosts []hostYAML `yaml:"hosts"`
}

type hostYAML struct {
	Line int `yaml:"-"`

	Node      string      `yaml:"node" is:"nodeName" empty:"no"`
	Machine   string      `yaml:"machine" is:"machineRef" empty:"no"`
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

	Address      string  `yaml:"address" empty:"no"` // its form depends on the driver
	Username     string  `yaml:"username"`
	PasswordFile string  `yaml:"passwordFile" is:"path" show:"no"`
	Credential   string  `yaml:"credential" is:"credential" show:"no"`
	Secret       string  `yaml:"secret" is:"secretRef" show:"no"`
	KgFile       string  `yaml:"kgFile" is:"path" show:"no"`
	Driver       string  `yaml:"driver" is:"driver" empty:"no"`
	CipherSuites []int   `yaml:"cipherSuites" is:"cipherSuite"`
	TLS          tlsYAML `yaml:"tls"`
	Auth         string  `yaml:"auth" is:"auto|basic"` // driver redfish
	IgnoreUUID   bool    `yaml:"ignoreUUID"`           // drivers ipmi, redfish

	Provider string `yaml:"provider"` // bmclib

	// fence-agent
	Agent            string            `yaml:"agent" is:"agent"`
	Parameters       map[string]string `yaml:"parameters" is:"parameter"`
	SecretParameters map[string]string `yaml:"secretParameters" is:"path" empty:"no" show:"no"`
}

type tlsYAML struct {
	CA                 string `yaml:"ca" is:"path"`
	PinSHA256          string `yaml:"pinSHA256" is:"pin"`
	InsecureSkipVerify bool   `yaml:"insecureSkipVerify"`
	RSAKeyExchange     bool   `yaml:"rsaKeyExchange"` // driver redfish
}

// Hosts is what hosts.d holds, in spite of what is wrong there.
type Hosts struct {
	// Entries are those of which it is known whose they are, also if they are Refused. Nobody changes one.
	Entries []*HostEntry
	// Unread is the error of the files and entries of which that is not known: they could be anybody's. nil: there are none.
	Unread error
	// as are the keys with which they were read.
	as hostKeys
	// sound are the files in which nothing was wrong.
	sound map[string]soundFile
}

// soundFile is a file in which nothing was wrong: the same content says the same again, if the hostKeys are the same.
type soundFile struct {
	sum     [sha256.Size]byte
	entries []*HostEntry // part of Hosts.Entries
}

// hostKeys are the keys of the configuration that say what the files of hosts.d mean.
type hostKeys struct{ file, directory, clusters, identity string }

func keysOfHosts(c Config) hostKeys {
	return hostKeys{c.File, c.Hosts, strings.Join(c.ClusterNames(), "\n"), c.Guards.Identity}
}

// For returns the hosts that CheckAndRead has read, if c reads them in the same way, and else reads them.
func (h Hosts) For(c Config) Hosts {
	if h.as == keysOfHosts(c) {
		return h
	}
	return ReadHosts(c)
}

// LoadHosts reads the files of c.Hosts in name order. Its error joins every
// problem, each naming file and line; two entries that could mean one host are
// among them. // I9
func LoadHosts(c Config) ([]*HostEntry, error) {
	hosts, _, errs := loadHosts(c, Hosts{}, false)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return hosts.Entries, nil
}

// ReadHosts is LoadHosts for a daemon that starts with what is good.
func ReadHosts(c Config) Hosts {
	hosts, _, _ := loadHosts(c, Hosts{}, false)
	return hosts
}

// HostFiles are the files of passwords, keys and certificates that the hosts of c name, each
// once; none of a host with an error. The daemon reads them at each use.
func HostFiles(c Config) (paths []string) {
	for _, h := range ReadHosts(c).Entries {
		if h.Refused != nil {
			continue
		}
		for i, l := range h.Levels {
			for j, d := range l.Devices {
				p := h.Passwords[i][j]
				paths = append(paths, p.File, p.KgFile, d.TLS.CA)
				paths = slices.AppendSeq(paths, maps.Values(p.Parameters))
			}
		}
	}
	slices.Sort(paths)
	return slices.DeleteFunc(slices.Compact(paths), func(p string) bool { return p == "" })
}

// loadHosts reads what there is, lists all that is wrong, and warns of the hosts' files if it is to look. A file that says what it
// said before is not parsed again.
func loadHosts(c Config, before Hosts, look bool) (h Hosts, warnings []string, errs []error) {
	files, err := listFiles(c.Hosts)
	if err != nil {
		err = fmt.Errorf("load hosts: %w", err)
		return Hosts{Unread: err}, nil, []error{err}
	}
	h.as, h.sound = keysOfHosts(c), make(map[string]soundFile, len(files))
	if before.as != h.as {
		before.sound = nil
	}
	var unread []error
	all := readEach(c, files, before.sound, look)
	entries := make([][]*HostEntry, len(all))
	for i, f := range all {
		entries[i], unread = f.entries, append(unread, f.unread...)
		warnings, errs = append(warnings, f.warnings...), append(errs, f.errs...)
	}
	h.Entries = slices.Concat(entries...) // as large as it must be: it stays
	errs = append(errs, refuseDuplicates(h.Entries)...)
	h.Unread = errors.Join(unread...)
	rest := h.Entries
	for i, f := range all {
		if len(f.errs) == 0 {
			h.sound[files[i]] = soundFile{f.sum, rest[:len(f.entries)]}
		}
		rest = rest[len(f.entries):]
	}
	return h, warnings, errs
}

// readFile is what stands in one file of hosts.d.
type readFile struct {
	sum          [sha256.Size]byte
	entries      []*HostEntry
	unread, errs []error // unread are among errs
	warnings     []string
}

// readEach reads the files, as many at a time as there are processors.
func readEach(c Config, files []string, before map[string]soundFile, look bool) []readFile {
	all, passwords := make([]readFile, len(files)), &passwordFiles{seen: map[string]checkedPassword{}}
	var next atomic.Int64
	var work sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(files); i = int(next.Add(1)) - 1 {
				all[i] = readOne(c, files[i], before[files[i]], look, passwords)
			}
		})
	}
	work.Wait()
	return all
}

func readOne(c Config, file string, before soundFile, look bool, passwords *passwordFiles) readFile {
	data, err := readBounded(file, maxFile)
	if err != nil {
		err = fmt.Errorf("load hosts: %w", err)
		return readFile{unread: []error{err}, errs: []error{err}}
	}
	f := readFile{sum: sha256.Sum256(data)}
	if f.sum == before.sum && (!look || before.filesAreRight(passwords)) {
		f.entries = before.unrefused()
		return f
	}
	r := newReader(file)
	r.checksFiles, r.passwords = look, passwords
	f.entries, f.unread = r.hosts(c, data)
	f.errs, f.warnings = r.errs, r.warnings
	return f
}

// filesAreRight looks at the files that the entries name, as reading the entries does. A warning needs the line of its key: then they are read.
func (f soundFile) filesAreRight(passwords *passwordFiles) bool {
	r := &reader{passwords: passwords}
	for _, e := range f.entries {
		for i := range e.Levels {
			for j := range e.Levels[i].Devices {
				r.checkFiles("", 0, &e.Levels[i].Devices[j], &e.Passwords[i][j])
			}
		}
	}
	return len(r.warnings) == 0
}

// unrefused are the entries as the file alone has them: what one was refused for stands in another file, and may have changed.
func (f soundFile) unrefused() []*HostEntry {
	all := slices.Clone(f.entries)
	for i, e := range all {
		if e.Refused != nil {
			all[i] = e.refusedFor(nil)
		}
	}
	return all
}

// refusedFor is the entry with another Refused.
func (e *HostEntry) refusedFor(why error) *HostEntry {
	other := *e
	other.Refused = why
	return &other
}

// hosts reads the file. unread is what is wrong where it is not known whose entry that is.
func (r *reader) hosts(c Config, data []byte) (entries []*HostEntry, unread []error) {
	root, err := parseYAML(r.file, data)
	if err != nil {
		r.errs = append(r.errs, err)
	}
	if root == nil {
		return nil, r.errs
	}
	var f hostsFile
	r.mapping(root, "", reflect.ValueOf(&f).Elem())
	outside := slices.Clone(r.errs) // of all entries: then entries may be missing
	for i, y := range f.Hosts {
		key := fmt.Sprintf("hosts[%d]", i)
		failed := r.failed[key]
		outside = slices.DeleteFunc(outside, func(err error) bool { return slices.Contains(failed.errs, err) })
		e, errs := r.entry(c, i, y, failed)
		switch {
		case len(errs) == 0:
			entries = append(entries, e)
		case failed.node != nil && !isTold(failed.node, y), y.Node == "" && y.Machine == "":
			unread = append(unread, errs...)
		default:
			e.Refused = errors.Join(errs...)
			e.dropUnread()
			entries = append(entries, e.ofEach(c, y)...)
		}
	}
	return entries, append(unread, outside...)
}

// entry turns one entry of the file into a HostEntry, and lists what is wrong in it. What follows from the errors of
// reading it is none of that.
func (r *reader) entry(c Config, number int, y hostYAML, failed failedElement) (*HostEntry, []error) {
	before, warned := len(r.errs), len(r.warnings)
	e := r.host(c, number, y)
	if failed.node == nil {
		return e, slices.Clone(r.errs[before:])
	}
	r.errs, r.warnings = r.errs[:before], r.warnings[:warned]
	return e, failed.errs
}

// isTold says whether an entry in which something is wrong still says whose it is: each of the keys that say so stands
// there at most once, with a value that was read.
func isTold(n *yaml.Node, y hostYAML) bool {
	read := map[string]string{"node": y.Node, "machine": y.Machine, "cluster": y.Cluster}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		value, is := read[name]
		if is && (value == "" || value != n.Content[i+1].Value) {
			return false
		}
		if is {
			read[name] = "" // a second one is too many
		}
	}
	return n.Kind == yaml.MappingNode
}

// dropUnread drops the devices of a refused entry that cannot be compared with others, because it is not known where they are,
// or which part of a service they are: a slip there must not refuse all outlets of a PDU.
func (e *HostEntry) dropUnread() {
	levels, passwords, places := e.Levels, e.Passwords, e.places
	e.Levels, e.Passwords, e.places = nil, nil, nil
	at := -1
	for l := range levels {
		var level bmc.Level
		var sources []PasswordSource
		for i, d := range levels[l].Devices {
			at++
			byParameters := d.Driver.Descriptor().ByParameters
			if known := d.Endpoint.Host != "" && !byParameters || byParameters && d.Part() != ""; known {
				level.Devices, sources, e.places = append(level.Devices, d), append(sources, passwords[l][i]), append(e.places, places[at])
			}
		}
		if len(sources) > 0 {
			e.Levels, e.Passwords = append(e.Levels, level), append(e.Passwords, sources)
		}
	}
}

// ofEach is a refused entry once for each name that it gives its host, and, if it names no cluster that there is, for
// each cluster: it may be meant in any.
func (e HostEntry) ofEach(c Config, y hostYAML) (all []*HostEntry) {
	clusters := c.ClusterNames()
	if slices.Contains(clusters, e.Cluster) {
		clusters = []string{e.Cluster}
	}
	for _, e.Cluster = range clusters {
		for _, of := range []HostEntry{{Node: y.Node}, {Machine: y.Machine}} {
			if of.Of() == "" {
				continue
			}
			e.Node, e.Machine = of.Node, of.Machine
			e.Name = bmc.EntryName(e.Cluster, e.Of())
			one := e
			all = append(all, &one)
		}
	}
	return all
}

// host turns one entry of the file into a HostEntry.
func (r *reader) host(c Config, number int, y hostYAML) *HostEntry {
	e := &HostEntry{Node: y.Node, Machine: y.Machine, Cluster: y.Cluster, place: place{r.file, y.Line, number}}
	key := e.place.key()
	switch {
	case y.Node == "" && y.Machine == "":
		r.refuse(y.Line, key, "node is missing; name the Node, or with machine: NAMESPACE/NAME a Machine that has none")
	case y.Node != "" && y.Machine != "":
		r.refuse(y.Line, key+".machine", "node names a host already; keep one of the two")
	}
	names := c.ClusterNames()
	switch {
	case y.Cluster == "" && len(names) == 1:
		e.Cluster = names[0]
	case y.Cluster == "":
		r.refuse(y.Line, key, "cluster is missing; there are several: %s", strings.Join(names, ", "))
	case !slices.Contains(names, y.Cluster):
		r.refuse(y.Line, key+".cluster", "there is no cluster %q in %s%s", y.Cluster, c.File, typo.Hint(y.Cluster, names))
	}
	e.Host = bmc.Host{
		Name:         bmc.EntryName(e.Cluster, e.Of()),
		PinnedUUID:   y.UUID,
		IdentityMode: y.Identity,
		Protected:    y.Protected,
		Source:       r.at(y.Line),
	}
	if e.IdentityMode == "" {
		e.IdentityMode = c.Guards.Identity
	}
	e.Levels, e.Passwords, e.places = r.levels(key, y)
	if reflect.DeepEqual(e.Passwords, r.lastPasswords) { // most entries of a file have the same
		e.Passwords = r.lastPasswords
	}
	r.lastPasswords = e.Passwords
	return e
}

// The most levels of a host, and the most devices of a level: an error beyond
// any server that is built.
const (
	maxLevels  = 8
	maxDevices = 8
)

// levels reads the ways to a host's power: bmc, which is short for one level
// with one device, or levels.
func (r *reader) levels(key string, y hostYAML) (levels []bmc.Level, passwords [][]PasswordSource, places []devicePlace) {
	list, short := y.Levels, false
	switch {
	case y.BMC.Line != 0 && len(y.Levels) > 0:
		r.refuse(y.Line, key, "has both bmc and levels; bmc is short for one level with one device")
		return nil, nil, nil
	case y.BMC.Line != 0:
		list, short = []levelYAML{{Devices: []deviceYAML{y.BMC}}}, true
	case len(y.Levels) == 0:
		r.refuse(y.Line, key, "bmc is missing")
	case len(y.Levels) > maxLevels:
		r.refuse(y.Line, key+".levels", "has %d levels; %d is the most", len(y.Levels), maxLevels)
		return nil, nil, nil
	}
	seen := earlierDevices{}
	if len(list) > 0 {
		levels, passwords = make([]bmc.Level, 0, len(list)), make([][]PasswordSource, 0, len(list))
	}
	for i, l := range list {
		levelKey := fmt.Sprintf("%s.levels[%d]", key, i)
		if n := len(l.Devices); n == 0 || n > maxDevices {
			r.refuse(l.Line, levelKey+".devices", "has %d devices; a level has 1 to %d", n, maxDevices)
			continue
		}
		level := bmc.Level{Devices: make([]bmc.Device, len(l.Devices))}
		sources := make([]PasswordSource, len(l.Devices))
		for j, d := range l.Devices {
			before, where := len(r.errs), devicePlace{level: int8(i), device: int8(j)}
			if short {
				where.level = -1
			}
			at := where.key(key)
			where.line = int32(r.lineOf(at, d.Line))
			level.Devices[j], sources[j] = r.device(at, d)
			level.Devices[j].SystemUUID = y.UUID
			places = append(places, where)
			if len(r.errs) == before && !short {
				r.repeated(at, d, seen.add(i, level.Devices[j]), i)
			}
		}
		levels, passwords = append(levels, level), append(passwords, sources)
	}
	return levels, passwords, places
}

// repeated refuses a device that an earlier one of the same host is already: in
// one level it would count for two, and in the next it would fail again.
func (r *reader) repeated(key string, d deviceYAML, first, level int) {
	switch {
	case first == level:
		r.refuse(d.Line, key, "the same device stands in this level already")
	case first >= 0:
		r.refuse(d.Line, key, "levels[%d] has this device with the same driver already; trying it again helps nothing", first)
	}
}

// earlierDevices are those of one host, with their levels.
type earlierDevices map[int][]bmc.Device

// add notes a device and gives the level that has it already, -1 when none has.
// Another level may reach it by another driver.
func (seen earlierDevices) add(level int, d bmc.Device) (first int) {
	first = -1
	for l := 0; l <= level && first < 0; l++ {
		for _, e := range seen[l] {
			sameDriver := e.Driver == d.Driver && e.Provider == d.Provider && e.Agent == d.Agent
			if e.Overlaps(&d) && (sameDriver || l == level) {
				first = l
			}
		}
	}
	seen[level] = append(seen[level], d)
	return first
}
