package hosts

import (
	"maps"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
)

// mark is something that hosts have in common only if they are one machine, or if an entry is
// wrong.
type mark struct {
	key  string
	text string // for messages
}

// The kinds of marks that several hosts may have.
const (
	markService = "on " // a host with a device of this service, whichever part of the service it is
	markSecret  = "in "
	markMAC     = "mac "
	markSerial  = "serial " // from the inventory
)

// place is what identifies a device. It holds no credentials.
type place struct {
	key, service, part, text string
	host                     string // address or DNS name
	standard                 bool   // a BMC at the standard port of its protocol
}

func places(h bmc.Host) (all []place) {
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			all = append(all, place{
				key: d.Key(), service: d.Service(), part: d.Part(), text: d.String(), host: d.Endpoint.Host,
				standard: !d.Driver.Descriptor().ByParameters && slices.Contains([]int{623, 443, 80}, d.Endpoint.Port),
			})
		}
	}
	return all
}

// marksOf returns every mark of a host once, in the order of the keys.
func marksOf(e *hostEntry) []mark {
	all := map[string]string{}
	for _, d := range e.devices {
		all["device "+d.key] = "device " + d.text
		all[markService+d.service] = "device " + d.text
		r := e.reports[d.key]
		for _, form := range bmc.UUIDForms(r.uuid) {
			all["uuid "+form] = "system UUID " + r.uuid + " (reported by " + d.text + ")"
		}
		addMACs(all, r.macs)
	}
	addMACs(all, e.macs)
	if serial, ok := bmc.NormalizeSerial(e.serial); ok {
		all[markSerial+serial] = "serial number " + e.serial
	}
	for _, s := range e.secrets {
		all[markSecret+s] = "Secret " + s
	}
	marks := make([]mark, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		marks = append(marks, mark{key, all[key]})
	}
	return marks
}

func addMACs(all map[string]string, macs []string) {
	for _, s := range macs {
		if mac, ok := bmc.NormalizeMAC(s); ok {
			all[markMAC+mac] = "MAC address " + mac
		}
	}
}

// uniqueMarks returns the marks that no other host may have. A service may serve many systems or
// outlets, but only if each entry says which one it means.
func uniqueMarks(e *hostEntry) []mark {
	list := slices.DeleteFunc(slices.Clone(e.marks), func(m mark) bool {
		return slices.ContainsFunc([]string{markService, markSecret, markMAC, markSerial}, func(kind string) bool { return strings.HasPrefix(m.key, kind) })
	})
	for _, d := range e.devices {
		text := "device " + d.text
		if d.part == "" {
			list = append(list, mark{markService + d.service, text})
		} else {
			list = append(list, mark{"device " + d.service, text})
		}
	}
	return list
}

// marksOfKind returns the marks of one kind.
func marksOfKind(kind string) func(*hostEntry) []mark {
	return func(e *hostEntry) (list []mark) {
		for _, m := range e.marks {
			if strings.HasPrefix(m.key, kind) {
				list = append(list, m)
			}
		}
		return list
	}
}
