package config

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

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

// ignored is why listFiles passes an entry over; "" if it does not, or if whoever hid the
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
		meant := didYouMean(name, names)
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

// exists says whether this host knows the user or group, by name or by number.
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
