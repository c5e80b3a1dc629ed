package hosts

import (
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
)

// twin says which other host leads to the same machine as the hosts of these names,
// which are one; "" when none does that counts. Whoever may write a BareMetalHost must
// not be able to keep another host from being fenced: against a host that proves whose it
// is, and is in hosts.d, pinned or enrolled, one that nobody knows does not count. // I9
func (h *Hosts) twin(names []string) string { return h.twinOf(names, h.index.any(names, h.excused)) }

// twinOf is twin of hosts of which it is said whether they are excused so.
func (h *Hosts) twinOf(names []string, excused bool) string {
	return h.index.other(unique, func(o *indexed) bool { return !excused || h.known(o) }, names)
}

// known says whether an administrator wrote a host down, or it is where it was pinned or
// enrolled, and does not tell by now that it is another machine.
func (h *Hosts) known(x *indexed) bool { return x.listed || h.pinned(x) }

// excused is known, but for an entry of hosts.d that does not prove whose it is and that
// nobody has enrolled: only the host beside it may show that the entry is wrong. // I8
func (h *Hosts) excused(x *indexed) bool {
	return x.listed && allIdentify(x.way) && x.way.IdentityMode != identityOff || h.pinned(x)
}

func (h *Hosts) pinned(x *indexed) bool {
	p, found, err := h.pins.get(x.name)
	if err != nil || !found || !pinnedHere(p, x.way) {
		return false
	}
	for _, t := range x.told {
		if contradicts(t.uuid, p.SystemUUID) && contradicts(t.uuid, p.BMCUUID) {
			return false
		}
	}
	return true
}

// bare is a host without its accounts.
func bare(h bmc.Host) bmc.Host {
	levels := make([]bmc.Level, len(h.Levels))
	for i, l := range h.Levels {
		for _, d := range l.Devices {
			d.Username, d.Password, d.BMCKey = "", bmc.Secret{}, bmc.Secret{}
			secret := map[string]bmc.Secret{} // that there are some is part of what is chosen
			for k := range d.SecretParameters {
				secret[k] = bmc.Secret{}
			}
			d.SecretParameters = secret
			levels[i].Devices = append(levels[i].Devices, d)
		}
	}
	h.Levels = levels
	return h
}

// sameMACs names another host with a MAC address of a subject's: in status they may be
// left over, so that forbids nothing by itself.
func (h *Hosts) sameMACs(s Subject) string {
	return h.index.other(beginning(withMAC), anyHost, names(s.Cluster, s.Node, s.BareMetalHost))
}

// secretShared names another host that names a Secret of the hosts of these names, or that
// was pinned with it.
func (h *Hosts) secretShared(names, secrets []string) string {
	if why := h.index.other(beginning(inSecret), anyHost, names); why != "" {
		return why
	}
	if other := h.pins.named(secrets, names); other != "" {
		return other + " was pinned with the same Secret " + strings.Join(secrets, ", ")
	}
	return ""
}

func anyHost(*indexed) bool { return true }

// secretsOf are those that the devices of a host name.
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

// follow notes the BareMetalHosts of a cluster that changed.
func (x *index) follow(cluster string, changes []policy.Change, host func(*policy.Host) (bmc.Host, error)) {
	for i := range changes {
		id := changes[i].ID
		if id.Kind != "BareMetalHost" || changes[i].Err != nil { // one that cannot be read stays as it was
			continue
		}
		name := cluster + "/" + id.Namespace + "/" + id.Name
		b, _ := changes[i].Value.(*policy.Host)
		if b == nil {
			x.drop(name)
			continue
		}
		h, err := host(b)
		if err != nil { // nobody can use its address
			h = bmc.Host{Source: "BareMetalHost " + b.Key()}
		}
		x.put(indexed{name: name, source: h.Source, uid: b.UID, way: h, secrets: secretsOf(cluster, h), devices: places(h), macs: b.MACs})
	}
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
