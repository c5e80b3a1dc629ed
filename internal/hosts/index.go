package hosts

import (
	"cmp"
	"slices"
	"sync"

	"github.com/fenced/fenced/internal/bmc"
)

// index finds hosts of the inventory that are one machine, in all clusters: by device, by the
// UUID that a BMC reported, and by MAC address. It also finds hosts that name the same Secret. It
// is updated when the inventory or a report changes, so a query does not depend on the size of
// the inventory. // I9
type index struct {
	mu     sync.Mutex
	byName map[string]*hostEntry    // by bmc.Host.Name
	byMark map[markKey][]*hostEntry // by mark.key
	// shared counts, by kind, the marks that several hosts have: mostly none, and then no host has a duplicate.
	shared map[markKind]int
	// classes are the classes that were reported, one copy of each: thousands of hosts have the same.
	classes map[string]string
}

// maxClasses bounds them: a BMC may report anything. Then they are forgotten, which only costs memory.
const maxClasses = 1 << 10

// hostEntry is one host. An entry never changes: the index replaces it, so it may be read
// without a lock. Its marks are derived from it when they are needed: a hundred thousand hosts have half a million.
type hostEntry struct {
	name    string
	uid     string    // of the BareMetalHost; two clusters may see the same object
	host    *bmc.Host // without passwords; the one of hosts.d itself, which never changes either
	listed  bool      // in hosts.d
	devices []place
	macs    []string       // from the inventory
	serial  string         // from the inventory
	reports []deviceReport // beside devices; nil before the first
}

// report is what a device, by its number, reported.
func (e *hostEntry) report(device int) deviceReport {
	if e.reports == nil {
		return deviceReport{}
	}
	return e.reports[device]
}

// deviceWith returns the number of the device with a key, -1 if there is none.
func (e *hostEntry) deviceWith(key string) int {
	return slices.IndexFunc(e.devices, func(p place) bool { return p.key() == key })
}

// deviceReport is what a device reported about itself and its host. What is empty was never
// reported.
type deviceReport struct {
	uuid  string
	macs  []string
	class string
}

func newIndex() *index {
	return &index{byName: map[string]*hostEntry{}, byMark: map[markKey][]*hostEntry{}, shared: map[markKind]int{}, classes: map[string]string{}}
}

// put adds or replaces a host of the inventory. The reports of the devices that it still has stay.
func (x *index) put(e hostEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.host == nil {
		e.host = &bmc.Host{}
	}
	e.reports = nil
	if old := x.byName[e.name]; old != nil && old.reports != nil {
		e.reports = make([]deviceReport, len(e.devices))
		for i, d := range e.devices {
			if was := old.deviceWith(d.key()); was >= 0 {
				e.reports[i] = old.reports[was]
			}
		}
	}
	x.replace(e)
}

// drop removes a host.
func (x *index) drop(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.byName[name]; e != nil {
		x.unmark(e)
		delete(x.byName, name)
	}
}

// report records what a device of a host reported. What it left out stays as it was.
func (x *index) report(name, device string, r deviceReport) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, at := x.byName[name], -1
	if e != nil {
		at = e.deviceWith(device)
	}
	if at < 0 {
		return
	}
	old := e.report(at)
	r.uuid = cmp.Or(r.uuid, old.uuid)
	if len(r.macs) == 0 {
		r.macs = old.macs
	}
	r.class = cmp.Or(r.class, old.class)
	if r.uuid == old.uuid && r.class == old.class && slices.Equal(r.macs, old.macs) {
		return
	}
	r.class = x.class(r.class)
	next := *e
	if next.reports = slices.Clone(e.reports); next.reports == nil {
		next.reports = make([]deviceReport, len(e.devices))
	}
	next.reports[at] = r
	x.replace(next)
}

// class is the one copy of a class. The caller holds x.mu.
func (x *index) class(name string) string {
	if known, ok := x.classes[name]; ok {
		return known
	}
	if len(x.classes) >= maxClasses {
		clear(x.classes)
	}
	x.classes[name] = name
	return name
}

// replace puts an entry in the place of the one with its name. The caller holds x.mu.
func (x *index) replace(e hostEntry) {
	if old := x.byName[e.name]; old != nil {
		x.unmark(old)
	}
	x.byName[e.name] = &e
	for _, m := range marksOf(&e, everyMark) {
		if x.byMark[m.key] = append(x.byMark[m.key], &e); len(x.byMark[m.key]) == 2 {
			x.shared[m.key.kind]++
		}
	}
}

// unmark removes an entry from x.byMark. The caller holds x.mu.
func (x *index) unmark(e *hostEntry) {
	for _, m := range marksOf(e, everyMark) {
		rest := slices.DeleteFunc(x.byMark[m.key], func(o *hostEntry) bool { return o == e })
		if len(rest) == 1 {
			x.shared[m.key.kind]--
		}
		if len(rest) == 0 {
			delete(x.byMark, m.key)
			continue
		}
		x.byMark[m.key] = rest
	}
}

// get returns the entry of a host, nil if there is none.
func (x *index) get(name string) *hostEntry {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byName[name]
}

// endpoints are the hosts of the addresses of all devices.
func (x *index) endpoints() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[string]bool{}
	for _, e := range x.byName {
		for i := range e.devices {
			all[e.devices[i].device.Endpoint.Host] = true
		}
	}
	return all
}

// anyOf reports whether is is true of one of the named hosts.
func (x *index) anyOf(names []string, is func(*hostEntry) bool) bool {
	return slices.ContainsFunc(names, func(name string) bool { e := x.get(name); return e != nil && is(e) })
}

// other returns which other host has a mark of the named hosts, which are one host, and which
// mark. It is "" if none has that counts. A nil counts means that each counts.
func (x *index) other(marks func(*hostEntry) []mark, counts func(*hostEntry) bool, names []string) string {
	return firstText(x.sharing(marks, names, counts == nil), counts)
}

// otherAt is other for an entry of the named hosts as it was, or would be: the index need not have it so.
func (x *index) otherAt(e *hostEntry, marks func(*hostEntry) []mark, counts func(*hostEntry) bool, names []string) string {
	x.mu.Lock()
	list := x.addSharing(nil, e, marks, names, counts == nil)
	x.mu.Unlock()
	return firstText(list, counts)
}

// firstText says which mark is shared with the host whose name is the first of those that count; "" if none counts.
func firstText(list []sharedMark, counts func(*hostEntry) bool) string {
	var first sharedMark
	for _, s := range list {
		if (first.other == nil || s.other.name < first.other.name) && (counts == nil || counts(s.other)) {
			first = s
		}
	}
	if first.other == nil {
		return ""
	}
	return first.text()
}

// sharedMark is a mark that two hosts have.
type sharedMark struct {
	mark  mark
	of    *hostEntry
	other *hostEntry
}

func (s sharedMark) text() string {
	return s.other.name + " (" + s.other.host.Source + ") has the same " + s.mark.text() + " as " + s.of.name + " (" + s.of.host.Source + ")"
}

// sharing returns the marks that the named hosts share with other hosts. With firstOnly it returns
// one with the host whose name is the first: thousands of hosts may share a Secret.
func (x *index) sharing(marks func(*hostEntry) []mark, names []string, firstOnly bool) (list []sharedMark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		if e := x.byName[name]; e != nil {
			list = x.addSharing(list, e, marks, names, firstOnly)
		}
	}
	return list
}

// addSharing is sharing for one entry of the named hosts. The caller holds x.mu.
func (x *index) addSharing(list []sharedMark, e *hostEntry, marks func(*hostEntry) []mark, names []string, firstOnly bool) []sharedMark {
	for _, m := range marks(e) {
		for _, o := range x.byMark[m.key] {
			if o == e || slices.Contains(names, o.name) || x.sameObject(names, o) {
				continue
			}
			switch {
			case !firstOnly || len(list) == 0:
				list = append(list, sharedMark{m, e, o})
			case o.name < list[0].other.name:
				list[0] = sharedMark{m, e, o}
			}
		}
	}
	return list
}

// areUnique reports whether no two hosts at all share a mark of uniqueMarks. Two that do share one of these kinds: a device, a UUID, or
// the service of both, of which one of them names no part.
func (x *index) areUnique() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shared[markDevice]+x.shared[markService]+x.shared[markUUID] == 0
}

// onService returns the hosts, other than the named ones, that have a device of a service.
func (x *index) onService(service string, names []string) (list []*hostEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.byMark[markKey{markService, service}] {
		if !slices.Contains(names, o.name) && !x.sameObject(names, o) {
			list = append(list, o)
		}
	}
	return list
}

// sameObject reports whether o is one of the named hosts, seen from another cluster. The caller
// holds x.mu.
func (x *index) sameObject(names []string, o *hostEntry) bool {
	return o.uid != "" && slices.ContainsFunc(names, func(name string) bool {
		e := x.byName[name]
		return e != nil && e.uid == o.uid
	})
}

// class is the model and firmware of the first BMC of a host that reported one. It is "" if none
// did, or if e is nil.
func (e *hostEntry) class() string {
	if e == nil {
		return ""
	}
	for _, r := range e.reports {
		if r.class != "" {
			return r.class
		}
	}
	return ""
}

// allMACs returns the MAC addresses of a host, from the inventory and from its devices.
func (e *hostEntry) allMACs() []string {
	list := slices.Clone(e.macs)
	for _, r := range e.reports {
		list = append(list, r.macs...)
	}
	return list
}

// dropIf removes the hosts of which gone is true.
func (x *index) dropIf(gone func(*hostEntry) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, e := range x.byName {
		if gone(e) {
			x.unmark(e)
			delete(x.byName, name)
		}
	}
}

func inCluster(name string) func(*hostEntry) bool {
	return func(e *hostEntry) bool {
		of, _ := bmc.EntryOf(e.name)
		return of == name
	}
}

// mark is something that hosts have in common only if they are one machine, or if an entry is
// wrong.
type mark struct {
	key    markKey
	said   string // the value as it was written or reported
	device *place // that has it, or reported it
}

// markKey is by what the index finds a mark.
type markKey struct {
	kind  markKind
	value string
}

// markKind is one kind of marks, or several.
type markKind uint8

// The kinds of marks, in the order in which a message names one. Several hosts may have a service, a Secret, a MAC address or a serial number.
const (
	markDevice  markKind = 1 << iota
	markSecret           // with the cluster that it is read from
	markMAC              // from the inventory, or reported
	markService          // a host with a device of this service, whichever part of the service it is
	markSerial           // from the inventory
	markUUID             // reported

	everyMark = markUUID<<1 - 1
)

// text names the mark in messages.
func (m mark) text() string {
	switch m.key.kind {
	case markUUID:
		return "system UUID " + m.said + " (reported by " + m.device.text() + ")"
	case markMAC:
		return "MAC address " + m.said
	case markSerial:
		return "serial number " + m.said
	case markSecret:
		return "Secret " + m.said
	}
	return "device " + m.device.text()
}

// place is what identifies a device.
type place struct {
	service, part string
	device        *bmc.Device // of hostEntry.host
}

// key is that of the device.
func (p *place) key() string {
	if p.part == "" {
		return p.service
	}
	return p.device.Key()
}

func (p *place) text() string { return p.device.String() }

func places(h *bmc.Host) (all []place) {
	all = make([]place, 0, len(h.Levels)) // most have one device in each
	for _, l := range h.Levels {
		for i := range l.Devices {
			d := &l.Devices[i]
			all = append(all, place{service: d.Service(), part: d.Part(), device: d})
		}
	}
	return all
}

// marksOf returns every mark of a host once that is of one of the kinds, in the order of the keys.
func marksOf(e *hostEntry, kinds markKind) []mark {
	var all []mark
	if kinds&markDevice != 0 {
		all = make([]mark, 0, 4*len(e.devices)) // mostly enough
	}
	add := func(kind markKind, value, said string, device *place) {
		key := markKey{kind, value}
		if i := slices.IndexFunc(all, func(m mark) bool { return m.key == key }); i >= 0 {
			all[i] = mark{key, said, device}
			return
		}
		all = append(all, mark{key, said, device})
	}
	for i := range e.devices {
		d := &e.devices[i]
		if kinds&markDevice != 0 {
			add(markDevice, d.key(), "", d)
		}
		if kinds&markService != 0 {
			add(markService, d.service, "", d)
		}
		if uuid := e.report(i).uuid; kinds&markUUID != 0 && uuid != "" {
			for _, form := range bmc.UUIDForms(uuid) {
				add(markUUID, form, uuid, d)
			}
		}
	}
	if kinds&markMAC != 0 {
		for _, s := range e.allMACs() {
			if mac, ok := bmc.NormalizeMAC(s); ok {
				add(markMAC, mac, mac, nil)
			}
		}
	}
	if kinds&markSerial != 0 {
		if serial, ok := bmc.NormalizeSerial(e.serial); ok {
			add(markSerial, serial, e.serial, nil)
		}
	}
	if kinds&markSecret != 0 {
		cluster, _ := bmc.EntryOf(e.name)
		for _, s := range secretsOf(cluster, e.host) {
			add(markSecret, s, s, nil)
		}
	}
	slices.SortFunc(all, func(a, b mark) int {
		return cmp.Or(cmp.Compare(a.key.kind, b.key.kind), cmp.Compare(a.key.value, b.key.value))
	})
	return all
}

// uniqueMarks returns the marks that no other host may have. A service may serve many systems or
// outlets, but only if each entry says which one it means.
func uniqueMarks(e *hostEntry) []mark {
	list := marksOf(e, markDevice|markUUID)
	for i := range e.devices {
		d := &e.devices[i]
		if d.part == "" {
			list = append(list, mark{markKey{markService, d.service}, "", d})
		} else {
			list = append(list, mark{markKey{markDevice, d.service}, "", d})
		}
	}
	return list
}

func marksOfKind(kind markKind) func(*hostEntry) []mark {
	return func(e *hostEntry) []mark { return marksOf(e, kind) }
}
