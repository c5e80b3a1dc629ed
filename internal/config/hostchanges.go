package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// HostChanges says which entries of hosts.d were added, removed and changed; "" for none. That
// an entry stands on another line is no change.
func HostChanges(before, after []HostEntry) string {
	was, is := byName(before), byName(after)
	var added, removed, changed []string
	for name, e := range is {
		old, found := was[name]
		switch {
		case !found:
			added = append(added, name)
		case !old.equals(e):
			changed = append(changed, name)
		}
	}
	for name := range was {
		if _, found := is[name]; !found {
			removed = append(removed, name)
		}
	}
	return NameChanges(added, removed, changed)
}

func byName(list []HostEntry) map[string]HostEntry {
	all := map[string]HostEntry{}
	for _, e := range list {
		all[e.Host.Name] = e
	}
	return all
}

// equals compares all but where the entry stands.
func (e HostEntry) equals(o HostEntry) bool {
	for _, x := range []*HostEntry{&e, &o} {
		x.place, x.places, x.Source = "", nil, ""
	}
	return reflect.DeepEqual(e, o)
}

// maxNamed is how many names NameChanges gives of each kind.
const maxNamed = 10

// NameChanges says in words what was added, removed and changed; "" for nothing.
func NameChanges(added, removed, changed []string) string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"added", added}, {"removed", removed}, {"changed", changed}} {
		if len(p.names) == 0 {
			continue
		}
		slices.Sort(p.names)
		text := strings.Join(p.names[:min(len(p.names), maxNamed)], " ")
		if more := len(p.names) - maxNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, p.what+" "+text)
	}
	return strings.Join(parts, ", ")
}
