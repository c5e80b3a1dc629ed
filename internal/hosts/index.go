package hosts

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fenced/fenced/internal/bmc"
)

// index finds hosts of the inventory that are one machine, in all clusters: by
// device, by the UUID that a BMC told, and by MAC address; and those that name one
// Secret. It is changed as the inventory and the answers change, and asked by name:
// the size of the inventory costs nothing. // I9
type index struct {
	mu    sync.Mutex
	hosts map[string]*indexed   // by bmc.Host.Name
	by    map[string][]*indexed // by mark
}

// indexed is one host.
type indexed struct {
	name, source string
	uid          string   // of the BareMetalHost: one object may be seen from two clusters
	way          bmc.Host // without any password
	listed       bool     // in hosts.d
	secrets      []string // that it names, with the cluster that they are read from
	devices      []place
	macs         []string              // as the inventory tells them
	told         map[string]deviceTold // by bmc.Device.Key
	marks        []mark                // under which it is found
}

// place is what a device is found by; it holds no credentials.
type place struct {
	key, service, part, text string
	host                     string // address or name
	standard                 bool   // a BMC at its protocol's own port
}

// deviceTold is what a device said about itself and its host.
type deviceTold struct {
	uuid  string
	macs  []string
	class string
}

// mark is something that only one host may have.
type mark struct {
	key  string
	what string // for people
}

func newIndex() *index {
	return &index{hosts: map[string]*indexed{}, by: map[string][]*indexed{}}
}

// put notes a host as the inventory has it now. What its devices told is kept
// for those that it still has.
func (x *index) put(h indexed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h.told = map[string]deviceTold{}
	if old := x.hosts[h.name]; old != nil {
		for _, d := range h.devices {
			if t, ok := old.told[d.key]; ok {
				h.told[d.key] = t
			}
		}
		x.unmark(old)
	}
	x.hosts[h.name] = &h
	x.mark(&h)
}

// drop forgets a host that is gone.
func (x *index) drop(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.hosts[name]; h != nil {
		x.unmark(h)
		delete(x.hosts, name)
	}
}

// tell notes what a device of a host said now; what it left out stays as it was.
func (x *index) tell(name, device string, t deviceTold) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.hosts[name]
	if h == nil || !slices.ContainsFunc(h.devices, func(p place) bool { return p.key == device }) {
		return
	}
	old := h.told[device]
	if t.uuid == "" {
		t.uuid = old.uuid
	}
	if len(t.macs) == 0 {
		t.macs = old.macs
	}
	if t.class == "" {
		t.class = old.class
	}
	if t.uuid == old.uuid && t.class == old.class && slices.Equal(t.macs, old.macs) {
		return
	}
	x.unmark(h)
	h.told[device] = t
	x.mark(h)
}

// of gives the devices of a host, the UUIDs that they told, and its MAC addresses.
func (x *index) of(name string) (devices []place, uuids, macs []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.hosts[name]
	if h == nil {
		return nil, nil, nil
	}
	macs = slices.Clone(h.macs)
	for _, d := range h.devices {
		t := h.told[d.key]
		uuids, macs = append(uuids, t.uuid), append(macs, t.macs...)
	}
	return h.devices, uuids, macs
}

// class is the model and firmware of a host's first BMC that told it.
func (x *index) class(name string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.hosts[name]
	if h == nil {
		return ""
	}
	for _, d := range h.devices {
		if t := h.told[d.key]; t.class != "" {
			return t.class
		}
	}
	return ""
}

// other says which other host has a mark of the hosts of these names, which are one, and
// which mark; "" when none of those that count has.
func (x *index) other(marks func(*indexed) []mark, counts func(*indexed) bool, names []string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var first *indexed
	why := ""
	for _, name := range names {
		h := x.hosts[name]
		if h == nil {
			continue
		}
		for _, m := range marks(h) {
			for _, o := range x.by[m.key] {
				if !slices.Contains(names, o.name) && !x.sameObject(names, o) && (first == nil || o.name < first.name) && counts(o) {
					first, why = o, o.name+" ("+o.source+") has the same "+m.what+" as "+h.name+" ("+h.source+")"
				}
			}
		}
	}
	return why
}

// beside gives the other hosts that count and have a device of a service.
func (x *index) beside(service string, names []string, counts func(*indexed) bool) (list []indexed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.by[onService+service] {
		if !slices.Contains(names, o.name) && !x.sameObject(names, o) && counts(o) {
			list = append(list, *o)
		}
	}
	return list
}

// any says whether one of the hosts of these names is so.
func (x *index) any(names []string, is func(*indexed) bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { h := x.hosts[name]; return h != nil && is(h) })
}

// sameObject says whether o is one of the named hosts, seen from another cluster.
func (x *index) sameObject(names []string, o *indexed) bool {
	return o.uid != "" && slices.ContainsFunc(names, func(name string) bool {
		h := x.hosts[name]
		return h != nil && h.uid == o.uid
	})
}

// mark and unmark keep x.by. x.mu is held.
func (x *index) mark(h *indexed) {
	h.marks = marksOf(h)
	for _, m := range h.marks {
		x.by[m.key] = append(x.by[m.key], h)
	}
}

func (x *index) unmark(h *indexed) {
	for _, m := range h.marks {
		rest := slices.DeleteFunc(x.by[m.key], func(o *indexed) bool { return o == h })
		if len(rest) == 0 {
			delete(x.by, m.key)
			continue
		}
		x.by[m.key] = rest
	}
	h.marks = nil
}

// marksOf gives everything under which a host is found, each once.
func marksOf(h *indexed) []mark {
	all := map[string]string{}
	for _, d := range h.devices {
		all["device "+d.key] = "device " + d.text
		all[onService+d.service] = "device " + d.text
		t := h.told[d.key]
		for _, form := range bmc.UUIDForms(t.uuid) {
			all["uuid "+form] = "system UUID " + t.uuid + " (told by " + d.text + ")"
		}
		addMACs(all, t.macs)
	}
	addMACs(all, h.macs)
	for _, s := range h.secrets {
		all[inSecret+s] = "Secret " + s
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
			all[withMAC+mac] = "MAC address " + mac
		}
	}
}

// unique gives the marks that no other host may have. A service may serve many
// systems or outlets, but then every entry must say which. x.mu is held.
func unique(h *indexed) []mark {
	list := slices.DeleteFunc(slices.Clone(h.marks), func(m mark) bool {
		return slices.ContainsFunc([]string{onService, inSecret, withMAC}, func(kind string) bool { return strings.HasPrefix(m.key, kind) })
	})
	for _, d := range h.devices {
		what := "device " + d.text
		if d.part == "" {
			list = append(list, mark{onService + d.service, what})
		} else {
			list = append(list, mark{"device " + d.service, what})
		}
	}
	return list
}

// beginning gives the marks of one kind.
func beginning(kind string) func(*indexed) []mark {
	return func(h *indexed) (list []mark) {
		for _, m := range h.marks {
			if strings.HasPrefix(m.key, kind) {
				list = append(list, m)
			}
		}
		return list
	}
}

// The kinds of marks that several hosts may have.
const (
	onService = "on " // every host of a service, whichever part of it is its own
	inSecret  = "in "
	withMAC   = "mac "
)
