package engine

import (
	"slices"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
)

// twin says which other host leads to the same machine as the hosts of these names,
// which are one; "" when none does that counts. Whoever may write a BareMetalHost must
// not be able to keep another host from being fenced: against one that a person has
// vouched for, or that was pinned, one that nobody knows does not count. // I9
func (e *Engine) twin(names []string) string { return e.twinOf(names, e.index.any(names, e.vouched)) }

// twinOf is twin of hosts of which it is said whether they are known.
func (e *Engine) twinOf(names []string, known bool) string {
	return e.index.other(unique, func(o *indexed) bool { return !known || e.vouched(o) }, names)
}

// vouched says whether an administrator wrote a host down, or it is where it was pinned
// or enrolled.
func (e *Engine) vouched(h *indexed) bool {
	if h.metal == nil {
		return true
	}
	p, found, err := e.pins.get(h.name)
	return err == nil && found && pinnedHere(p, *h.metal)
}

// sameMACs names another host with a MAC address of a subject's: in status they may be
// left over, so that forbids nothing by itself.
func (e *Engine) sameMACs(s Subject) string {
	return e.index.other(beginning(withMAC), anyHost, names(s.Cluster, s.Node, s.BareMetalHost))
}

// secretShared names another host that names a Secret of the hosts of these names.
func (e *Engine) secretShared(names []string) string {
	return e.index.other(beginning(inSecret), anyHost, names)
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
		x.put(indexed{name: name, source: h.Source, uid: b.UID, metal: &h, secrets: secretsOf(cluster, h), devices: places(h), macs: b.MACs})
	}
}

func places(h bmc.Host) (all []place) {
	for _, l := range h.Levels {
		for _, d := range l.Devices {
			all = append(all, place{
				key: d.Key(), service: d.Service(), part: d.Part(), text: d.String(), host: d.Endpoint.Host,
				standard: d.Driver != bmc.DriverFenceAgent && slices.Contains([]int{623, 443, 80}, d.Endpoint.Port),
			})
		}
	}
	return all
}
