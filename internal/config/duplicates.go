package config

import (
	"fmt"

	"github.com/fenced/fenced/internal/bmc"
)

// duplicates finds entries that name one Node, one BMC or one UUID twice:
// fencing either would switch off the wrong host for one of them. // I9
func duplicates(hosts []HostEntry) (errs []error) {
	names, uuids, devices := map[string]string{}, map[string]string{}, devices{}
	for i, e := range hosts {
		if first, ok := names[e.Name]; ok {
			errs = append(errs, fmt.Errorf("%s.%s of cluster %s is also at %s; keep one of the entries", e.place, e.keyAndName(), e.Cluster, first))
		}
		names[e.Name] = e.Source
		for l := range e.Levels {
			for j, d := range e.Levels[l].Devices {
				if first, ok := devices.taken(i, d); ok {
					errs = append(errs, fmt.Errorf("%s: %s of %s is also at %s; %s",
						e.places[l][j], describe(d), e.kindAndName(), hosts[first].Source, d.Driver.Descriptor().DistinguishHint))
				}
			}
		}
		if first, ok := sameUUID(uuids, e); ok {
			errs = append(errs, fmt.Errorf("%s.uuid: the UUID %s of %s is also at %s; write what /sys/class/dmi/id/product_uuid of each node says",
				e.place, e.PinnedUUID, e.kindAndName(), first))
		}
	}
	return errs
}

// kindAndName is "node NAME" or "Machine NAMESPACE/NAME"; keyAndName has the key before it.
func (e HostEntry) kindAndName() string {
	if e.Machine != "" {
		return "Machine " + e.Machine
	}
	return "node " + e.Node
}

func (e HostEntry) keyAndName() string {
	if e.Machine != "" {
		return "machine: " + e.kindAndName()
	}
	return "node: " + e.kindAndName()
}

func describe(d bmc.Device) string {
	switch {
	case !d.Driver.Descriptor().ByParameters:
		return "the BMC " + d.String()
	case d.Part() == "":
		return "the device " + d.String() + ", without a plug,"
	}
	return "the outlet " + d.String()
}

// devices tells which entry, by its number, has which part of which service.
type devices map[string]map[string]int

// taken looks a device of an entry up and notes it. One service may serve
// several systems or outlets, but then every entry must say which; one entry may
// reach a device in several ways.
func (seen devices) taken(entry int, d bmc.Device) (first int, ok bool) {
	where, which := d.Service(), d.Part()
	parts := seen[where]
	if parts == nil {
		parts = map[string]int{}
		seen[where] = parts
	}
	for _, p := range []string{which, ""} {
		if first, ok = parts[p]; ok && first != entry {
			return first, true
		}
	}
	if which == "" {
		for _, first = range parts {
			if first != entry {
				return first, true
			}
		}
	}
	parts[which] = entry
	return 0, false
}

// overlap says whether two devices may switch the same thing.
func overlap(a, b bmc.Device) bool {
	return a.Service() == b.Service() && (a.Part() == b.Part() || a.Part() == "" || b.Part() == "")
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
