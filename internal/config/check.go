package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/typo"
)

// Check finds everything that is wrong with the files, all at once and without a side
// effect: `fenced --check-config`. more finds what this package does not know, as policies
// and kubeconfigs. The warnings are of what need not be right when the daemon starts, as the
// hosts' files with passwords and certificates, of doors that stand further open than they
// need to, and of what is there in vain.
func Check(file string, more func(Config) (warnings []string, err error), overrides ...string) (warnings []string, err error) {
	checked, err := CheckAndRead(file, Hosts{}, more, overrides...)
	return checked.Warnings, err
}

// Checked is what a check has read and found. Its Config is that of Load if the error of the check is none as a Whole.
type Checked struct {
	Config   Config
	Hosts    Hosts
	Warnings []string
}

// CheckAndRead is Check, and returns what it has read. A daemon that starts or reloads uses that: to read a hundred thousand hosts
// again takes seconds, and what it reads then is not what was checked. before are the hosts that it read last.
func CheckAndRead(file string, before Hosts, more func(Config) (warnings []string, err error), overrides ...string) (checked Checked, err error) {
	c, errs := load(file, overrides)
	if c.File == "" {
		return checked, errors.Join(errs...)
	}
	warnings := slices.Concat(warnModes(c), warnState(c), warnIgnored(c), warnEnvironment(), warnRoles(c))
	if len(c.Clusters) == 0 { // they say what hosts and policies are for
		return Checked{Config: c, Warnings: warnings}, errors.Join(errs...)
	}
	hosts, ofHosts, hostErrs := loadHosts(c, before, true)
	others, moreErr := more(c)
	for _, err := range hostErrs {
		errs = append(errs, InPart{err})
	}
	errs = append(errs, moreErr)
	// Only a start of the daemon can read what systemd gives: ExecReload= has the variable, too,
	// but may not look into the directory. The daemon itself checks again.
	if _, err := os.ReadDir(os.Getenv("CREDENTIALS_DIRECTORY")); err == nil {
		errs = append(errs, CheckCredentials(hosts.Entries)...)
	}
	return Checked{c, hosts, slices.Concat(warnings, ofHosts, others)}, errors.Join(errs...)
}

// InPart is an error that concerns some hosts or some clusters: the daemon starts, and does not fence these.
type InPart struct{ Err error }

func (e InPart) Error() string { return e.Err.Error() }
func (e InPart) Unwrap() error { return e.Err }

// Whole returns those errors of Check with which the daemon cannot start: all but the ones InPart.
func Whole(err error) error {
	if _, some := errors.AsType[InPart](err); !some {
		return err
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var whole []error
		for _, err := range list.Unwrap() {
			whole = append(whole, Whole(err))
		}
		return errors.Join(whole...)
	}
	return nil
}

// ReadPolicies gives the files of c.Policies to decode, in name order. Its error joins
// those of reading them.
func ReadPolicies(c Config, decode func(file string, data []byte)) error {
	files, err := listFiles(c.Policies)
	if err != nil {
		return fmt.Errorf("load policies: %w", err)
	}
	var errs []error
	for _, file := range files {
		data, err := readBounded(file, maxFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("load policies: %w", err))
			continue
		}
		decode(file, data)
	}
	return errors.Join(errs...)
}

// maxCA bounds a file of certificates.
const maxCA = 1 << 20

// checkFiles warns of the files that a device needs and that are not as they must be.
// They are read again at each use, and may be mended while the daemon runs: no
// host keeps it from starting.
func (r *reader) checkFiles(key string, line int, d *bmc.Device, s *PasswordSource) {
	if s.File != "" {
		password, err := r.passwords.read(s.File)
		if err == nil {
			err = fits(password, *d)
		}
		r.warn(line, key+".passwordFile", err)
	}
	if s.KgFile != "" {
		_, err := readBMCKey(s.KgFile, nil)
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

// CheckGuarded refuses what every user of this host could change: a file or a
// directory that everybody may write, and one in a directory where everybody may put
// another in its place. A link is followed, and must be guarded itself. Such a file
// would let anyone choose which hosts are powered off.
func CheckGuarded(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if err := refuseWritable(real, false); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(real), filepath.Dir(path)} {
		if err := checkDirectories(dir); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// checkDirectories checks a directory and all above it. In one with the sticky bit, as
// /tmp, nobody can rename what belongs to others; but anyone can add files, and make
// one before its owner does.
func checkDirectories(dir string) error {
	for sticky := false; ; sticky = true {
		if err := refuseWritable(dir, sticky); err != nil {
			return err
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// refuseWritable is the error of a file or directory that everybody may write.
func refuseWritable(path string, stickyWillDo bool) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	sticky := fi.Mode()&fs.ModeSticky != 0
	switch {
	case fi.Mode().Perm()&0o002 == 0, sticky && stickyWillDo:
		return nil
	case sticky: // it is meant to be so
		return fmt.Errorf("everybody may write in %s, so any user of this host could decide what fenced does; use a directory that only root may write, as /etc/fenced", path)
	}
	return fmt.Errorf("everybody may write %[1]s (mode %04[2]o), so any user of this host could decide what fenced does; run: chmod o-w %[1]s", path, fi.Mode().Perm())
}

// openRegular opens a regular file that is not writable by everybody. A pipe or a device
// would block the daemon.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err == nil {
		err = CheckGuarded(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// warnModes warns of files that more people may read or write than need to.
func warnModes(c Config) (warnings []string) {
	for _, path := range append([]string{c.State.Etcd.Key}, Kubeconfigs(c)...) { // the other files name secrets, and hold none
		if mode, _, ok := modeOf(path); ok && mode&0o004 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: everybody may read it (mode %04o), and it holds a secret; run: %s", path, mode, HideSecret(path)))
		}
	}
	for _, path := range append(OwnFiles(c), Kubeconfigs(c)...) {
		if mode, group, ok := modeOf(path); ok && mode&0o020 != 0 && group != 0 {
			warnings = append(warnings, fmt.Sprintf("%[1]s: its group may write it (mode %04[2]o), so each member of that group can decide what fenced does; run: chmod g-w %[1]s", path, mode))
		}
	}
	return warnings
}

// serviceGroup is the group of the daemon's user, which may read the secrets.
const serviceGroup = "fenced"

// HideSecret is the command that keeps a secret from everybody but root and the daemon. Without the group, the daemon could
// not read the file any more if root owns it.
func HideSecret(path string) string {
	return fmt.Sprintf("chgrp %s %[2]s && chmod 0640 %[2]s", serviceGroup, path)
}

// Kubeconfigs are all that c names, each once.
func Kubeconfigs(c Config) (paths []string) {
	for _, cl := range c.Clusters {
		paths = append(paths, cl.Kubeconfig, cl.Management.Kubeconfig)
	}
	slices.Sort(paths)
	return slices.DeleteFunc(slices.Compact(paths), func(p string) bool { return p == "" })
}

// OwnFiles are the files and directories that decide what fenced does.
func OwnFiles(c Config) []string {
	paths := []string{c.File}
	for _, dir := range []string{c.ConfDir(), c.Hosts, c.Policies} {
		files, _ := listFiles(dir) // who reads them reports the error
		paths = append(append(paths, dir), files...)
	}
	return paths
}

// modeOf is the permission and the group of a file. The code that needs the file reports
// an error of it.
func modeOf(path string) (mode fs.FileMode, group uint32, ok bool) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, 0, false
	}
	return fi.Mode().Perm(), fi.Sys().(*syscall.Stat_t).Gid, true // Linux: always this type
}

// warnIgnored warns of files that lie where configuration is read, and are not read.
func warnIgnored(c Config) (warnings []string) {
	for _, dir := range []string{c.ConfDir(), c.Hosts, c.Policies} {
		if dir == "" {
			continue
		}
		entries, _ := os.ReadDir(dir) // who reads it reports the error
		for _, e := range entries {
			if why := ignored(e); why != "" {
				warnings = append(warnings, filepath.Join(dir, e.Name())+" is ignored, because "+why)
			}
		}
	}
	return warnings
}

// ignored returns why listFiles passes an entry over, or an empty string if it does not, or if whoever hid the
// file meant that.
func ignored(e os.DirEntry) string {
	name := e.Name()
	hidden, ext := strings.HasPrefix(name, "."), filepath.Ext(name)
	switch {
	case hidden && (ext == ".yaml" || ext == ".yml"):
		return "its name begins with a dot"
	case hidden, ext == ".yaml":
		return ""
	case e.IsDir():
		return "it is a directory; put its files into the one above"
	case ext == ".yml":
		return "only names that end in .yaml are read; rename it to " + strings.TrimSuffix(name, ext) + ".yaml"
	}
	return "only names that end in .yaml are read; move it elsewhere if that is meant"
}

// warnEnvironment warns of variables that look like those of keys, and are of none: a mistyped one would change nothing, and
// nobody would notice. Its value may be a secret. // I25
func warnEnvironment() (warnings []string) {
	c := Default()
	var names, sections []string
	for _, leaf := range leaves(&c) {
		if leaf.isText() {
			names = append(names, envName(leaf.key))
		}
		if section, _, nested := strings.Cut(leaf.key, "."); nested {
			sections = append(sections, envName(section)+"_")
		}
	}
	for _, set := range os.Environ() {
		name, _, _ := strings.Cut(set, "=")
		if !strings.HasPrefix(name, envName("")) || slices.Contains(names, name) {
			continue
		}
		meant := typo.Hint(name, names)
		if meant != "" || slices.ContainsFunc(sections, func(s string) bool { return strings.HasPrefix(name, s) }) {
			warnings = append(warnings, "environment "+name+" is ignored: there is no such key, or only a file can set it"+meant)
		}
	}
	return warnings
}

// warnRoles warns of users and groups that this host does not know: nobody has their role.
// They may be added later, so that it is no error. The group of the package is none of
// them: the daemon itself says when it has no group for its socket. Names are looked up as
// the daemon does it for each order: in /etc/passwd and /etc/group.
func warnRoles(c Config) (warnings []string) {
	r := c.Control.Roles
	for _, role := range []struct {
		key  string
		text []string
	}{{"viewer", r.Viewer}, {"operator", r.Operator}, {"admin", r.Admin}} {
		for _, text := range role.text {
			p, err := ParsePrincipal(text) // an error was reported when it was read
			if err != nil || p.exists() || p == (Principal{Group: true, Name: ViewGroup}) {
				continue
			}
			warnings = append(warnings, fmt.Sprintf("%s: control.roles.%s: neither /etc/passwd nor /etc/group has %s, so nobody has the role by that name; "+
				"correct the name, or add the user or group", c.File, role.key, text))
		}
	}
	return warnings
}

// exists returns whether this host knows the user or group, by name or by number.
func (p Principal) exists() bool {
	if p.Group {
		_, byName := user.LookupGroup(p.Name)
		_, byID := user.LookupGroupId(p.Name)
		return byName == nil || byID == nil
	}
	_, byName := user.Lookup(p.Name)
	_, byID := user.LookupId(p.Name)
	return byName == nil || byID == nil
}
