package hosts

import (
	"maps"
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
	list := e.uuids()
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

// expected gathers what the identity of a host must match. serial is the hardware's, if a
// BareMetalHost tells it.
func (c *catalog) expected(h bmc.Host, systemUUID, serial string, manual bool) expectedIdentity {
	want := expectedIdentity{node: systemUUID, serial: serial, manual: manual}
	if p, found, err := c.pins.get(h.Name); err == nil && found && pinnedHere(p, h) {
		want.pin = p
	}
	return want
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
