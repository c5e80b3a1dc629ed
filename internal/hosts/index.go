package hosts

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

// index finds hosts of the inventory that are one machine, in all clusters: by device, by the
// UUID that a BMC reported, and by MAC address. It also finds hosts that name the same Secret. It
// is updated when the inventory or a report changes, so a query does not depend on the size of
// the inventory. // I9
type index struct {
	mu     sync.Mutex
	byName map[string]*hostEntry   // by bmc.Host.Name
	byMark map[string][]*hostEntry // by mark.key
}

// hostEntry is one host. An entry never changes: the index replaces it, so it may be read
// without a lock.
type hostEntry struct {
	name, source string
	uid          string   // of the BareMetalHost; two clusters may see the same object
	host         bmc.Host // without accounts
	listed       bool     // in hosts.d
	secrets      []string // that the devices name, each with the cluster that it is read from
	devices      []place
	macs         []string                // from the inventory
	serial       string                  // from the inventory
	reports      map[string]deviceReport // by bmc.Device.Key
	marks        []mark                  // under which the index finds it
}

// deviceReport is what a device reported about itself and its host. What is empty was never
// reported.
type deviceReport struct {
	uuid  string
	macs  []string
	class string
}

func newIndex() *index {
	return &index{byName: map[string]*hostEntry{}, byMark: map[string][]*hostEntry{}}
}

// put adds or replaces a host of the inventory. The reports of the devices that it still has stay.
func (x *index) put(e hostEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e.reports = map[string]deviceReport{}
	if old := x.byName[e.name]; old != nil {
		for _, d := range e.devices {
			if r, ok := old.reports[d.key]; ok {
				e.reports[d.key] = r
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
	e := x.byName[name]
	if e == nil || !slices.ContainsFunc(e.devices, func(p place) bool { return p.key == device }) {
		return
	}
	old := e.reports[device]
	r.uuid = cmp.Or(r.uuid, old.uuid)
	if len(r.macs) == 0 {
		r.macs = old.macs
	}
	r.class = cmp.Or(r.class, old.class)
	if r.uuid == old.uuid && r.class == old.class && slices.Equal(r.macs, old.macs) {
		return
	}
	next := *e
	next.reports = maps.Clone(e.reports)
	next.reports[device] = r
	x.replace(next)
}

// replace puts an entry in the place of the one with its name. The caller holds x.mu.
func (x *index) replace(e hostEntry) {
	if old := x.byName[e.name]; old != nil {
		x.unmark(old)
	}
	e.marks = marksOf(&e)
	x.byName[e.name] = &e
	for _, m := range e.marks {
		x.byMark[m.key] = append(x.byMark[m.key], &e)
	}
}

// unmark removes an entry from x.byMark. The caller holds x.mu.
func (x *index) unmark(e *hostEntry) {
	for _, m := range e.marks {
		rest := slices.DeleteFunc(x.byMark[m.key], func(o *hostEntry) bool { return o == e })
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

// anyOf reports whether is is true of one of the named hosts.
func (x *index) anyOf(names []string, is func(*hostEntry) bool) bool {
	return slices.ContainsFunc(names, func(name string) bool { e := x.get(name); return e != nil && is(e) })
}

// other returns which other host has a mark of the named hosts, which are one host, and which
// mark. It is "" if none has that counts. A nil counts means that each counts.
func (x *index) other(marks func(*hostEntry) []mark, counts func(*hostEntry) bool, names []string) string {
	var first sharedMark
	for _, s := range x.sharing(marks, names, counts == nil) {
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
	return s.other.name + " (" + s.other.source + ") has the same " + s.mark.text + " as " + s.of.name + " (" + s.of.source + ")"
}

// sharing returns the marks that the named hosts share with other hosts. With firstOnly it returns
// one with the host whose name is the first: thousands of hosts may share a Secret.
func (x *index) sharing(marks func(*hostEntry) []mark, names []string, firstOnly bool) (list []sharedMark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		e := x.byName[name]
		if e == nil {
			continue
		}
		for _, m := range marks(e) {
			for _, o := range x.byMark[m.key] {
				if slices.Contains(names, o.name) || x.sameObject(names, o) {
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
	}
	return list
}

// onService returns the hosts, other than the named ones, that have a device of a service.
func (x *index) onService(service string, names []string) (list []*hostEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.byMark[markService+service] {
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
	for _, d := range e.devices {
		if r := e.reports[d.key]; r.class != "" {
			return r.class
		}
	}
	return ""
}

// allMACs returns the MAC addresses of a host, from the inventory and from its devices.
func (e *hostEntry) allMACs() []string {
	list := slices.Clone(e.macs)
	for _, d := range e.devices {
		list = append(list, e.reports[d.key].macs...)
	}
	return list
}

// listed returns the names of the hosts that are in hosts.d.
func (x *index) listed() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := map[string]bool{}
	for name, e := range x.byName {
		if e.listed {
			names[name] = true
		}
	}
	return names
}

// dropCluster removes the hosts of a cluster.
func (x *index) dropCluster(cluster string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, e := range x.byName {
		if of, _ := bmc.EntryOf(name); of == cluster {
			x.unmark(e)
			delete(x.byName, name)
		}
	}
}

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
	}
	for _, s := range e.allMACs() {
		if mac, ok := bmc.NormalizeMAC(s); ok {
			all[markMAC+mac] = "MAC address " + mac
		}
	}
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

// catalog is what is known about the hosts of all clusters: as the inventory lists them now, and
// as they were pinned or enrolled.
type catalog struct {
	index *index
	pins  *pins
}

// duplicate returns which other host leads to the same machine as the named hosts, which are one
// host. It is "" if none does that counts. Whoever may write a BareMetalHost must not be able to
// keep another host from being fenced. So an unknown host does not count against a host that
// proves its identity and is in hosts.d, pinned or enrolled. // I9
func (c *catalog) duplicate(names []string) string {
	return c.duplicateUnless(names, c.index.anyOf(names, c.outranksUnknown))
}

// duplicateUnless is duplicate. unknownDiscounted says whether unknown hosts do not count.
func (c *catalog) duplicateUnless(names []string, unknownDiscounted bool) string {
	counts := c.isKnown
	if !unknownDiscounted {
		counts = nil
	}
	return c.index.other(uniqueMarks, counts, names)
}

// isKnown reports whether an administrator wrote a host down, or it is where it was pinned or
// enrolled and does not report another machine now.
func (c *catalog) isKnown(e *hostEntry) bool { return e.listed || c.isPinned(e) }

// outranksUnknown is isKnown, except for an entry of hosts.d that does not prove its identity and
// that nobody has enrolled. Only the other host can show that such an entry is wrong. // I8
func (c *catalog) outranksUnknown(e *hostEntry) bool {
	return e.listed && allIdentify(e.host) && e.host.IdentityMode != identityOff || c.isPinned(e)
}

func (c *catalog) isPinned(e *hostEntry) bool {
	p, found, err := c.pins.get(e.name)
	if err != nil || !found || !pinnedHere(p, e.host) {
		return false
	}
	for _, r := range e.reports {
		if contradicts(r.uuid, p.SystemUUID) && contradicts(r.uuid, p.BMCUUID) {
			return false
		}
	}
	return true
}

// uuids returns the system UUIDs that the devices of a host reported, and those with which it was pinned: after a start
// no device has reported anything yet. A pin that is void proves nothing, and may still say which host this is. // I13
func (c *catalog) uuids(e *hostEntry) []string {
	var list []string
	for _, d := range e.devices {
		list = append(list, e.reports[d.key].uuid)
	}
	if c.isPinned(e) {
		p, _, _ := c.pins.get(e.name)
		list = append(list, p.SystemUUID, p.BMCUUID)
	}
	return list
}

// sameMACs returns another host with a MAC address of the named hosts. This alone forbids nothing:
// a MAC address in the status of a BareMetalHost may be out of date.
func (c *catalog) sameMACs(names []string) string {
	return c.index.other(marksOfKind(markMAC), nil, names)
}

// sameHardware returns another host with a serial number or a MAC address of the named hosts: then
// neither identifies one machine.
func (c *catalog) sameHardware(names []string) string {
	if why := c.index.other(marksOfKind(markSerial), nil, names); why != "" {
		return why
	}
	return c.sameMACs(names)
}

// secretShared returns another host that names a Secret of the named hosts, or that was pinned
// with one of these Secrets.
func (c *catalog) secretShared(names, secrets []string) string {
	if why := c.index.other(marksOfKind(markSecret), nil, names); why != "" {
		return why
	}
	if other := c.pins.withSecret(secrets, names); other != "" {
		return other + " was pinned with the same Secret " + strings.Join(secrets, ", ")
	}
	return ""
}

// class is the model and firmware of a host's BMC, as a health check found it last, or else as it
// was pinned. It is "" if neither is known; then a freeze is about this host alone.
func (c *catalog) class(host string) string {
	if host == "" {
		return ""
	}
	if class := c.index.get(host).class(); class != "" {
		return class
	}
	p, _, _ := c.pins.get(host) // an unreadable pin is like none
	return p.Class
}

// enrolment returns the pin of a host that a person enrolled. found is false if there is none, or
// if it cannot be read.
func (c *catalog) enrolment(host string) (p state.Pin, found bool) {
	p, found, err := c.pins.get(host)
	return p, err == nil && found && p.EnrolledBy != ""
}

// withoutAccounts is a host without its accounts.
func withoutAccounts(h bmc.Host) bmc.Host {
	levels := make([]bmc.Level, len(h.Levels))
	for i, l := range h.Levels {
		for _, d := range l.Devices {
			d.Username, d.Password, d.BMCKey = "", bmc.Secret{}, bmc.Secret{}
			d.SecretParameters = maps.Clone(d.SecretParameters)
			for k := range d.SecretParameters { // the names are part of what chooses the device
				d.SecretParameters[k] = bmc.Secret{}
			}
			levels[i].Devices = append(levels[i].Devices, d)
		}
	}
	h.Levels = levels
	return h
}

// secretsOf returns the Secrets that the devices of a host name, each as cluster/namespace/name.
func secretsOf(cluster string, h bmc.Host) (all []string) {
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			if d.Secret != "" {
				all = append(all, cluster+"/"+d.Secret)
			}
		}
	}
	return all
}
