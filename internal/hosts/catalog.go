package hosts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

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
	if c.index.areUnique() { // it is asked about a hundred thousand hosts, one after the other
		return ""
	}
	all := c.duplicateUnless(names, false)
	if all == "" || !c.index.anyOf(names, c.outranksUnknown) {
		return all
	}
	return c.duplicateUnless(names, true)
}

// duplicateUnless is duplicate. unknownDiscounted says whether unknown hosts do not count.
func (c *catalog) duplicateUnless(names []string, unknownDiscounted bool) string {
	return c.index.other(uniqueMarks, c.counting(unknownDiscounted), names)
}

// counting returns which hosts count; nil: each.
func (c *catalog) counting(unknownDiscounted bool) func(*hostEntry) bool {
	if unknownDiscounted {
		return c.isKnown
	}
	return nil
}

// duplicateAt is duplicate for the devices at which a host is used, or about to be used. The index may have it at others, not yet these or no
// longer: a BareMetalHost, or hosts.d, may be changed meanwhile. // I9
func (c *catalog) duplicateAt(h *bmc.Host, names []string) string {
	all := c.duplicateAtUnless(h, names, false)
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == h.Name })
	if all == "" || !c.outranksUnknown(c.entryAt(h)) && !c.index.anyOf(others, c.outranksUnknown) {
		return all
	}
	return c.duplicateAtUnless(h, names, true)
}

// duplicateAtUnless is duplicateAt. unknownDiscounted says whether unknown hosts do not count.
func (c *catalog) duplicateAtUnless(h *bmc.Host, names []string, unknownDiscounted bool) string {
	return c.index.otherAt(c.entryAt(h), uniqueMarks, c.counting(unknownDiscounted), names)
}

// duplicateToEnroll is duplicate for a subject whose devices a person enrolls: as the index has it, and as it is read. // I9
func (c *catalog) duplicateToEnroll(s *Subject, unknownDiscounted bool) string {
	return cmp.Or(c.duplicateUnless(s.names(), unknownDiscounted), c.duplicateAtUnless(&s.Host, s.names(), unknownDiscounted))
}

// entryAt is the entry of a host with the devices at which it is used: that of the index, if it has the host there.
func (c *catalog) entryAt(h *bmc.Host) *hostEntry {
	used := &hostEntry{name: h.Name, host: h, devices: places(h)}
	sameDevice := func(a, b place) bool { return a.key() == b.key() }
	if e := c.index.get(h.Name); e != nil && slices.EqualFunc(e.devices, used.devices, sameDevice) {
		return e
	}
	return used
}

// isKnown reports whether an administrator wrote a host down, or it is where it was pinned or
// enrolled and does not report another machine now.
func (c *catalog) isKnown(e *hostEntry) bool { return e.listed || c.isPinned(e) }

// outranksUnknown is isKnown, except for an entry of hosts.d that does not prove its identity and
// that nobody has enrolled. Only the other host can show that such an entry is wrong. // I8
func (c *catalog) outranksUnknown(e *hostEntry) bool {
	return e.listed && e.host.Identifies() && e.host.IdentityMode != identityOff || c.isPinned(e)
}

func (c *catalog) isPinned(e *hostEntry) bool {
	p, found, err := c.pins.get(e.name)
	if err != nil || !found || !pinnedHere(p, *e.host) {
		return false
	}
	for _, r := range e.reports {
		if contradicts(r.uuid, p.SystemUUID) && contradicts(r.uuid, p.BMCUUID) {
			return false
		}
	}
	return true
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

// secretShared returns another host that names one of these Secrets, which are about to be read, or one of the named hosts, or that was
// pinned with one. The index may have another Secret for the host, not yet or no longer this one: a BareMetalHost may be changed meanwhile. // I10
func (c *catalog) secretShared(names, secrets []string) string {
	marks := func(e *hostEntry) []mark {
		all := marksOf(e, markSecret)
		for _, s := range secrets {
			all = append(all, mark{key: markKey{markSecret, s}, said: s})
		}
		return all
	}
	if why := c.index.other(marks, nil, names); why != "" {
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

// secretsOf returns the Secrets that the devices of a host name, each as cluster/namespace/name.
func secretsOf(cluster string, h *bmc.Host) (all []string) {
	for _, l := range h.Levels {
		for i := range l.Devices {
			if secret := l.Devices[i].Secret; secret != "" {
				all = append(all, cluster+"/"+secret)
			}
		}
	}
	return all
}
