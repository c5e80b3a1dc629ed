package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is one key whose value differs between the configuration of the running daemon and
// that of the files.
type Change struct {
	Key string // guards.maxInFlight, clusters.prod.mode
	// Live: a reload takes the new value in. Any other key keeps its value until a restart.
	Live bool
}

// liveKeys are the keys that a reload takes in. Every other key needs a restart.
var liveKeys = []string{
	"hosts", "policies", "log.level",
	"guards.quietPeriod", "guards.maxInFlight", "guards.maxInFlightPercent", "guards.maxInFlightPerZone", "guards.maxInFlightTotal",
	"guards.startsPerHour", "guards.maxDeletions", "guards.deletionsPerHour", "guards.deletionTimeout", "guards.zoneBreakerPercent",
	"guards.zoneBreakerMin", "guards.minPowerInterval", "guards.maxAttempts", "guards.maxFencesPerDay", "guards.clockSkewMax",
	"guards.powerOnFoundOff",
	"power.offDeadline", "power.onDeadline", "power.apiTimeout", "power.podsGoneTimeout", "power.restoreTimeout", "power.runTimeout",
	"power.nodeReadyTimeout", "power.sessionTimeout", "power.retryInterval",
}

func isLive(key string) bool { return slices.Contains(liveKeys, key) }

// Changes lists the keys that differ, in the order of fenced.yaml. Clusters are compared by
// their names; ClusterChanges lists those that only one of the two has.
func Changes(running, wanted Config) []Change {
	var list []Change
	compare(reflect.ValueOf(running), reflect.ValueOf(wanted), "", func(key string, _, _ reflect.Value) {
		list = append(list, Change{Key: key, Live: isLive(key)})
	})
	return list
}

// ClusterChanges lists the clusters that wanted has and running has not, and the names of those of
// which the opposite is true. A reload adds and removes them.
func ClusterChanges(running, wanted Config) (added []Cluster, removed []string) {
	for _, c := range wanted.Clusters {
		if clusterNamed(running.Clusters, c.Name) == nil {
			added = append(added, c)
		}
	}
	for _, c := range running.Clusters {
		if clusterNamed(wanted.Clusters, c.Name) == nil {
			removed = append(removed, c.Name)
		}
	}
	return added, removed
}

// Renamed gives the new name of each cluster that is removed while one with the same kubeconfig is
// added.
func Renamed(running, wanted Config) map[string]string {
	names := map[string]string{}
	added, removed := ClusterChanges(running, wanted)
	for _, old := range removed {
		for _, c := range added {
			if c.Kubeconfig == clusterNamed(running.Clusters, old).Kubeconfig {
				names[old] = c.Name
			}
		}
	}
	return names
}

// clusterNamed finds a cluster by its name; nil if there is none.
func clusterNamed(list []Cluster, name string) *Cluster {
	if i := slices.IndexFunc(list, func(c Cluster) bool { return c.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// TakeLive returns the running configuration with the values of wanted for all keys that a
// reload takes in, and with its clusters. A cluster that both have keeps its keys.
func TakeLive(running, wanted Config) Config {
	out := running
	out.Clusters = slices.Clone(wanted.Clusters)
	for i := range out.Clusters {
		if same := clusterNamed(running.Clusters, out.Clusters[i].Name); same != nil {
			out.Clusters[i] = *same
		}
	}
	compare(reflect.ValueOf(&out).Elem(), reflect.ValueOf(wanted), "", func(key string, old, value reflect.Value) {
		if isLive(key) {
			old.Set(value)
		}
	})
	return out
}

// compare calls differs for each key below two structs whose values are not equal.
func compare(a, b reflect.Value, above string, differs func(key string, a, b reflect.Value)) {
	others := appendLeaves(nil, above, b)
	for i, leaf := range appendLeaves(nil, above, a) {
		switch x, y := leaf.value, others[i].value; {
		case x.Type() == reflect.TypeFor[[]Cluster]():
			compareClusters(x.Interface().([]Cluster), y.Interface().([]Cluster), leaf.key, differs)
		case x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0: // one of them may be nil
		case !reflect.DeepEqual(x.Interface(), y.Interface()):
			differs(leaf.key, x, y)
		}
	}
}

// compareClusters compares the clusters that two lists have, whose order means nothing.
func compareClusters(a, b []Cluster, above string, differs func(key string, a, b reflect.Value)) {
	for _, c := range a {
		if same := clusterNamed(b, c.Name); same != nil {
			compare(reflect.ValueOf(c), reflect.ValueOf(*same), above+"."+c.Name, differs)
		}
	}
}

// HostChanges says which entries of hosts.d were added, removed and changed; "" for none. That
// an entry stands on another line is no change.
func HostChanges(before, after []*HostEntry) string {
	return MapChanges(byName(before), byName(after), func(old, e *HostEntry) bool { return old == e || old.equals(e) })
}

// MapChanges says which keys of a map were added and removed, and which have another value; "" for none.
func MapChanges[V any](was, is map[string]V, same func(V, V) bool) string {
	var added, removed, changed []string
	for name, v := range is {
		switch old, found := was[name]; {
		case !found:
			added = append(added, name)
		case !same(old, v):
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

func byName(list []*HostEntry) map[string]*HostEntry {
	all := make(map[string]*HostEntry, len(list))
	for _, e := range list {
		all[e.Name] = e
	}
	return all
}

// equals compares all but where the entry stands.
func (e *HostEntry) equals(o *HostEntry) bool {
	x, y := *e, *o
	for _, each := range []*HostEntry{&x, &y} {
		each.place, each.places, each.Source = place{}, nil, ""
	}
	return reflect.DeepEqual(x, y)
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
