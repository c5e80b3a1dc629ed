package config

import (
	"fmt"

	"github.com/fenced/fenced/internal/bmc"
)

// duplicates finds entries that name one Node, one BMC or one UUID twice:
// fencing either would switch off the wrong host for one of them. // I9
func duplicates(hosts []HostEntry) (errs []error) {
	names, uuids, bmcs := map[string]string{}, map[string]string{}, map[string]map[string]string{}
	for _, e := range hosts {
		if first, ok := names[e.Name]; ok {
			errs = append(errs, fmt.Errorf("%s: node %s of cluster %s is also at %s", e.Source, e.Node, e.Cluster, first))
		}
		names[e.Name] = e.Source
		for _, l := range e.Levels {
			for _, d := range l.Devices {
				if first, ok := sameDevice(bmcs, e, d); ok {
					errs = append(errs, fmt.Errorf("%s: the BMC %s of node %s is also at %s", e.Source, d, e.Node, first))
				}
			}
		}
		if first, ok := sameUUID(uuids, e); ok {
			errs = append(errs, fmt.Errorf("%s: the UUID %s of node %s is also at %s", e.Source, e.PinnedUUID, e.Node, first))
		}
	}
	return errs
}

// sameDevice looks a device of the entry up and notes it. One service may serve
// several systems or outlets, but then every entry must say which.
func sameDevice(seen map[string]map[string]string, e HostEntry, d bmc.Device) (first string, ok bool) {
	where, system := d.Service(), d.Part()
	systems := seen[where]
	if systems == nil {
		systems = map[string]string{}
		seen[where] = systems
	}
	first, ok = systems[system]
	if !ok && system != "" {
		first, ok = systems[""]
	}
	if !ok && system == "" {
		for _, first = range systems {
			ok = true
			break
		}
	}
	systems[system] = e.Source
	return first, ok
}

// sameUUID looks the pinned UUID up in the byte orders in which it would match.
func sameUUID(seen map[string]string, e HostEntry) (first string, ok bool) {
	for i, form := range bmc.UUIDForms(e.PinnedUUID) {
		if i == 0 {
			first, ok = seen[form]
		}
		seen[form] = e.Source
	}
	return first, ok
}
