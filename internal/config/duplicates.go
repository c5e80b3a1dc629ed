package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fenced/fenced/internal/bmc"
)

// refuseDuplicates refuses all entries that name one Node, one BMC or one UUID:
// fencing either would switch off the wrong host for one of them. // I9
func refuseDuplicates(hosts []*HostEntry) (errs []error) {
	names, uuids, devices := make(map[string]int, len(hosts)), map[string]int{}, make(devices, len(hosts))
	refuse := func(err error, entries ...int) {
		errs = append(errs, err)
		for _, i := range entries {
			hosts[i] = hosts[i].refusedFor(errors.Join(hosts[i].Refused, err)) // a running daemon may have the one of before
		}
	}
	for i, e := range hosts {
		if first, ok := names[e.Name]; ok {
			refuse(fmt.Errorf("%s.%s of cluster %s is also at %s; keep one of the entries", e.place, e.keyAndName(), e.Cluster, hosts[first].Source), first, i)
		}
		names[e.Name] = i
		for l := range e.Levels {
			for j, d := range e.Levels[l].Devices {
				others := slices.DeleteFunc(devices.taken(i, d), func(o int) bool { return hosts[o].place == e.place }) // one entry in several clusters
				if len(others) > 0 {
					refuse(fmt.Errorf("%s: %s of %s is also at %s; %s",
						e.placeOf(l, j), describe(d), e.kindAndName(), hosts[others[0]].Source, d.Driver.Descriptor().DistinguishHint), append(others, i)...)
				}
			}
		}
		if first, ok := sameUUID(uuids, e, i); ok && hosts[first].place != e.place {
			refuse(fmt.Errorf("%s.uuid: the UUID %s of %s is also at %s; write what /sys/class/dmi/id/product_uuid of each node says",
				e.place, e.PinnedUUID, e.kindAndName(), hosts[first].Source), first, i)
		}
	}
	return errs
}

// kindAndName is "node NAME" or "Machine NAMESPACE/NAME"; keyAndName has the key before it.
func (e *HostEntry) kindAndName() string {
	if e.Machine != "" {
		return "Machine " + e.Machine
	}
	return "node " + e.Node
}

func (e *HostEntry) keyAndName() string {
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

// devices tells which entry, by its number, has which part of which service: the first that names the part.
type devices map[string][]devicePart

type devicePart struct {
	part  string
	entry int
}

// taken looks a device of an entry up and notes it. One service may serve
// several systems or outlets, but then every entry must say which; one entry may
// reach a device in several ways.
func (seen devices) taken(entry int, d bmc.Device) (others []int) {
	where, which := d.Service(), d.Part()
	noted := false
	for _, first := range seen[where] {
		noted = noted || first.part == which
		if first.entry != entry && (first.part == which || first.part == "" || which == "") {
			others = append(others, first.entry)
		}
	}
	if !noted { // also if it is refused: what it means may be what a later entry names
		seen[where] = append(seen[where], devicePart{which, entry})
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// sameUUID looks the pinned UUID up in the byte orders in which it would match.
func sameUUID(seen map[string]int, e *HostEntry, entry int) (first int, ok bool) {
	for i, form := range bmc.UUIDForms(e.PinnedUUID) {
		if i == 0 {
			first, ok = seen[form]
		}
		seen[form] = entry
	}
	return first, ok
}
